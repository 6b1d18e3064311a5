"""The settings of a data directory that no host's model serves."""

from __future__ import annotations

import re

_TABLE = re.compile(r"^\[compactor\]\n", re.MULTILINE)
_LOCAL = '[compactor]\nmodel = "deterministic"\n'


def local(settings: str = "") -> str:
    """These settings with summaries made locally and at once, unless they name another model.

    What is not about the compactor must wait for no model, and spend nothing.
    """
    if not _TABLE.search(settings):
        return f"{settings}{_LOCAL}"
    named = re.search(r"^model = ", settings, re.MULTILINE)
    return settings if named else _TABLE.sub(_LOCAL, settings, count=1)
