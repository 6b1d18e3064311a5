"""A call is found by the names and the values of its input, whatever these are (§3, §8)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from optchat.core.records import RecordKind
from optchat.masking import mask
from optchat.storage.searched import searched_text

TEXTS = st.text(st.characters(codec=None), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.just(10**400) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


@settings(deadline=None)  # the first text waits for the detector
@given(VALUES, st.booleans())
def test_a_call_is_found_by_each_name_and_value_of_its_input(value: Any, escaped: bool):
    payload = json.dumps(value, ensure_ascii=escaped).encode("utf-8", "replace")
    lines = "\n".join(told("", json.loads(payload))).encode("utf-8", "replace").decode()
    assert searched_text(RecordKind.TOOL_CALL, "bash", (), payload) == mask(lines)


def told(name: str, value: Any) -> Iterator[str]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from told(key, inner)
        case list():
            for inner in value:
                yield from told(name, inner)
        case _:
            yield f"{name}: {value}" if name else str(value)
