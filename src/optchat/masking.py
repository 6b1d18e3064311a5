"""Secrets in text become a word that says what stood there: ``[masked: github pat]`` (§8, §14).

A maintained detector finds what has a form of its own (tokens of several hundred services, also
inside base64), and by the rules in ``masking.yml`` what is one by where it stands: passwords in
addresses, values of key-like names, headers, private keys. What is left is in SECURITY.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

MASK_VERSION = f"1/{metadata.version('kingfisher-secret-scanner')}"
"""Moves with every change of what ``mask`` gives, so that a text made with another is made anew."""

_RUN = b"a" * 16
_RUNS = bytes(
    97 if c.isascii() and (c.isalnum() or c in "_-") else 32 for c in map(chr, range(256))
)
_MARK = re.compile(rb"\[masked: [a-z0-9 ]{1,60}\]")
_Span = tuple[int, int, str]


def mask(text: str) -> str:
    """``text`` with each secret in it replaced by its kind; the same for the same text, always.

    Masking what is masked changes nothing. A megabyte takes about 20 ms, of which other threads
    wait for little; the first text of a process that could hold a secret waits for the detector.
    """
    data = text.encode("utf-8", "surrogatepass")
    spans = _secrets(data)
    return _applied(data, spans).decode("utf-8", "surrogatepass") if spans else text


def mask_part(data: bytes, start: int, end: int) -> tuple[str, int]:
    """Bytes ``start`` to ``end`` of ``data`` as text, masked as in the whole; and how many masks.

    A secret that reaches out of the part is masked as a whole where it begins. What is no UTF-8
    becomes the replacement character.
    """
    inside = [s for s in _secrets(data) if s[0] < end and s[1] > start]
    parts: list[str] = []
    at = start
    for first, last, kind in inside:
        parts.append(data[at : max(at, first)].decode("utf-8", "replace"))
        if first >= start:
            parts.append(f"[masked: {kind}]")
        at = min(last, end)
    return "".join([*parts, data[at:end].decode("utf-8", "replace")]), len(inside)


def load_detector() -> None:
    """Load the detector now: 0.3 s, and 4 s the first time on a machine, when it is compiled."""
    _scanner()


@cache
def _scanner() -> Scanner:
    from kingfisher_sdk import Rules, Scanner  # 40 MB that plain text does not need

    # The compiled rules, 2 MB and none of anyone's text, are kept in the user's cache folder.
    ours = Path(__file__).with_name("masking.yml")
    return Scanner(Rules([str(ours)], confidence="medium"))


def _secrets(data: bytes) -> list[_Span]:
    """The secrets of ``data``, in order, apart from each other, whole characters each.

    What masks uncover, such as a header's second value, is found in the next round. Each round
    leaves less outside of masks, so that there is a last one.
    """
    spans: list[_Span] = []
    if not _can_hold(data):
        return spans
    while True:
        masked = _applied(data, spans)
        detected = _detected(masked)
        found = detected and [
            (_before(spans, start), _before(spans, end), kind)
            for start, end, kind in _outside_marks(masked, detected)
            if start < end
        ]
        if not found:
            return spans
        spans = list(_joined(sorted([*spans, *(_whole(data, span) for span in found)])))


def _applied(data: bytes, spans: list[_Span]) -> bytes:
    if not spans:
        return data
    parts: list[bytes] = []
    at = 0
    for start, end, kind in spans:
        parts += [data[at:start], f"[masked: {kind}]".encode()]
        at = end
    return b"".join([*parts, data[at:]])


def _before(spans: list[_Span], place: int) -> int:
    """Where a place of the masked data was before; inside of a mask, the end of what it masks."""
    for start, end, kind in spans:
        if place <= start:
            break
        place = max(end, place - len(kind) - len("[masked: ]") + end - start)
    return place


def _whole(data: bytes, span: _Span) -> _Span:
    start, end, kind = span
    while start and data[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(data) and data[end] & 0xC0 == 0x80:
        end += 1
    return start, end, kind


def _outside_marks(data: bytes, spans: list[_Span]) -> Iterator[_Span]:
    """The spans that are more than a mark already; what overlaps one takes it in whole."""
    marks = [m.span() for m in _MARK.finditer(data)]
    for start, end, kind in spans:
        touched = [(a, b) for a, b in marks if a < end and start < b]
        if touched and touched[0][0] <= start and end <= touched[-1][1] and len(touched) == 1:
            continue
        yield (
            min([start, *(a for a, _ in touched)]),
            max([end, *(b for _, b in touched)]),
            kind,
        )


def _joined(spans: list[_Span]) -> Iterator[_Span]:
    """Overlapping spans as one, of the kind of the one that begins first."""
    held: _Span | None = None
    for start, end, kind in spans:
        if held is not None and start < held[1]:
            held = (held[0], max(held[1], end), held[2])
            continue
        if held is not None:
            yield held
        held = (start, end, kind)
    if held is not None:
        yield held


def _can_hold(data: bytes) -> bool:
    """Whether there may be a secret: it is a run of letters and digits, or a sign is beside it."""
    signed = b":" in data or b"=" in data or b"@" in data or b"--" in data
    return signed or _RUN in data.translate(_RUNS)


def _detected(data: bytes) -> list[_Span]:
    # What would make the detector take the text for another encoding gives way byte for byte.
    plain = data.replace(b"\0", b" ")
    if not plain.isascii():
        plain = _SURROGATE.sub(b"???", plain.replace(b"\xef\xbb\xbf", b"   "))
    found: list[_Span] = []
    for finding in _scanner().scan(plain):
        place, rule = finding.location, finding.rule_id
        start, end = place["start_offset"], place["end_offset"]
        if rule == "optchat.private-key":
            end = _end_of_key(data, start)
        called = data[end : end + 1] in (b"(", b"[") and rule.startswith("optchat.")
        if not called and _is_secret(rule, data[start:end], visible=finding.visible):
            found.append((start, end, _kind(rule)))
    return found


_SURROGATE = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")


def _kind(rule: str) -> str:
    """A rule's name as words: ``betterleaks.github-pat`` is a github pat."""
    name = re.split(r"[./]", re.sub(r"\.\d+$", "", rule))[-1]
    words = re.sub(r"[^a-z0-9]+", " ", name.lower()).strip()[:60]
    return "password" if words == "generic credential uri" else words or "secret"


# --- a second look --------------------------------------------------------------------------------

_PEM = re.compile(
    rb"-----begin [a-z0-9 ]{11,50}-----"
    # Up to its end, or where the end was cut off, as far as it goes on like a key.
    rb"(?:(?:(?!-----begin ).){0,20000}?-----end (?:[a-z0-9]+ ){0,4}private key(?: block)?-----"
    rb"|(?:(?:\\[nr]|\s|[a-z-]+:[^\n]*\n|[0-9]+[\t|:])*[a-z0-9+/=]{16,})*)",
    re.DOTALL | re.IGNORECASE,
)


def _end_of_key(data: bytes, start: int) -> int:
    match = _PEM.match(data, start)
    return match.end() if match is not None else start


_PLACEHOLDER = re.compile(
    rb"[$%{(\[*./~]|x{3,}|your|my[-_]|change[-_]?me|replace|placeholder|dummy|example|sample"
    rb"|(?:password|passwd|pass|secret|token|username|user|string|none|null|undefined|true|false)\Z",
    re.IGNORECASE,
)
_EXAMPLE = (b"example", b"placeholder", b"xxxxxx", b"0000000000", b"123456789", b"...")


def _is_secret(rule: str, value: bytes, *, visible: bool) -> bool:
    if _is_example(value):
        return False
    match rule:
        case "optchat.private-key" | "optchat.telegram-bot-api-token" | "optchat.discord-webhook":
            return True
        case (
            "optchat.password.1" | "optchat.password.2" | "optchat.password.4" | "optchat.key.1"
            | "betterleaks.generic-credential-uri"
        ):  # fmt: skip
            return not _PLACEHOLDER.match(value)
        case "optchat.password.3" | "optchat.password.5" | "optchat.key.3":
            return _is_varied(value) and not _PLACEHOLDER.match(value)
        case "optchat.authorization-header" | "optchat.bearer-token":
            return _is_varied(value)
        case "optchat.key.2" | "optchat.key.4" | "optchat.api-key":
            return _is_random(value) and not _PLACEHOLDER.match(value)
        case _:  # what the detector needs beside a secret, such as an account's name, is none
            return visible or rule.endswith(("-secret", "secret-key", "secret-access-key"))


def _is_varied(value: bytes) -> bool:
    """Whether there are both letters and digits, as in few words and few numbers."""
    return len(value) >= 8 and bool(re.search(rb"[0-9]", value) and re.search(rb"[A-Za-z]", value))


def _is_random(value: bytes) -> bool:
    """Whether a value is as mixed as keys are, and no name or path of a program."""
    return (
        _is_varied(value)
        and re.search(rb"[A-Za-z0-9+/=_]{12}", value) is not None
        and len(set(value)) >= 10
    )


def _is_example(value: bytes) -> bool:
    """Whether a value says of itself that it is none, as keys in documentation do."""
    lowered = value.lower()
    return any(word in lowered for word in _EXAMPLE)
