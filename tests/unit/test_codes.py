"""Short forms are read back as what they stand for, whatever it is (§3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optchat.core.records import RecordKind
from optchat.core.tree import NodeKind
from optchat.engine.keys import event_key
from optchat.engine.nodes import digest
from optchat.storage.sqlite.codes import (
    NODE_KINDS,
    RECORD_KINDS,
    STATUSES,
    code,
    hash_bytes,
    hash_text,
    hashes_bytes,
    name_of,
)


@given(st.text() | st.text("ABCabc019-_=", max_size=24))
def test_any_text_comes_back_from_its_short_form(text):
    assert hash_text(hash_bytes(text)) == text


@given(st.binary(max_size=40))
def test_a_hash_is_stored_as_its_bytes(data):
    assert hash_bytes(hash_text(data)) == data


@given(
    st.lists(st.text())
    | st.integers(0, 24).flatmap(
        lambda n: st.lists(st.text("AEQgwabc019-_", min_size=n, max_size=n), max_size=5)
    )
)
def test_many_hashes_are_each_what_it_is_alone(texts):
    assert hashes_bytes(texts) == [hash_bytes(text) for text in texts]


def test_keys_and_digests_of_ours_have_a_short_form():
    assert len(hash_bytes(event_key("h", "s", "m", "p", "text"))) == 9
    assert len(hash_bytes(digest("a"))) == 16


@pytest.mark.parametrize("kinds, names", [(RecordKind, RECORD_KINDS), (NodeKind, NODE_KINDS)])
def test_each_kind_has_a_number(kinds, names):
    assert {kind.value for kind in kinds} == set(names.listed)
    assert [name_of(names, code(names, name)) for name in names.listed] == list(names.listed)


def test_a_name_that_is_not_listed_is_stored_as_it_is():
    assert name_of(STATUSES, code(STATUSES, "elsewhere")) == "elsewhere"
