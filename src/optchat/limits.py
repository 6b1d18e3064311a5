"""Every fixed bound in one place, the unit last in its name.

What a person may change is in :mod:`optchat.config`; these are format and safety bounds.
"""

SUMMARY_BYTES_MAX = 512
"""Summary text of one node, UTF-8, measured escaped as it is rendered (§4)."""

LINE_BYTES_MAX = 768
"""One rendered line: ref, label and the escaped text of a node, with its line feed."""

OWN_VIEW_HIGH_BYTES = 64 * 1024
OWN_VIEW_LOW_BYTES = 32 * 1024
SHARED_VIEW_HIGH_BYTES = 48 * 1024
SHARED_VIEW_LOW_BYTES = 24 * 1024
"""Hysteresis of the persisted frontiers, rendered bytes (§6)."""

NEWS_BYTES_MAX = 12 * 1024
"""The rendered publications of one news block; more than that folds."""

SHARED_BASE_NEWS_BYTES_MAX = 6 * 1024
"""News past which the scope's rendered shared base is renewed at the next fold."""

BLOB_CHUNK_BYTES = 1024 * 1024
"""Payload bytes in one stored chunk, before compression."""

RECALLED_LINES_MAX = 5
"""What a request's own words bring up unasked."""

PAYLOAD_BYTES_MAX = 256 * 1024 * 1024
"""One retained payload; more is refused with an error, never clipped."""

ZOOM_PAGE_TOKENS = 4_000
ZOOM_PAGE_TOKENS_MAX = 14_000
ZOOM_PAGE_LINES_MAX = 1_800
"""Quoted, a page stays below what the host would cut: 51,200 bytes or 2,000 lines."""

SEARCH_PAGE_HITS = 20
SEARCH_PAGE_HITS_MAX = 50
SESSIONS_PAGE_ROWS = 50
EXCERPT_CHARS = 240
QUERY_BYTES_MAX = 4_096
QUERY_TERMS_MAX = 32

MESSAGES_PAGE_ROWS = 20
MESSAGES_PAGE_ROWS_MAX = 50
MESSAGES_AROUND_MAX = 20
MESSAGES_LOOKED_THROUGH = 1_000
ANSWER_BYTES_MAX = 44_000
"""Browsing: messages on a page, on either side of one, and looked through for words in one call."""

JOB_ATTEMPTS_MAX = 5
JOB_LEASE_MS = 60_000

MESSAGES_MAX = 200_000
"""Messages of one host session in one reconciliation."""

REQUEST_BYTES_MAX = 512 * 1024 * 1024
"""One request body on the coordinator's socket."""
