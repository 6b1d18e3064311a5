"""The process that reads a host's store for an import; see ``reading``.

The detector takes as long to load as everything else, and does it beside.
"""

from __future__ import annotations

import sys
import threading

from optchat.masking import load_detector


def main() -> int:
    """Read what standard input asks for, and tell of it to standard output."""
    loading = threading.Thread(target=load_detector, name="detector")
    loading.start()
    from optchat.coordinator import reading

    loading.join()
    return reading.main()


if __name__ == "__main__":
    sys.exit(main())
