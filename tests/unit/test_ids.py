"""Ids: short, of the port's form, in order, and never the same twice in a store (§3)."""

from __future__ import annotations

import re

from optchat.coordinator.ids import CountedIds


def test_ids_of_many_starts_are_short_ordered_and_never_alike():
    made = []
    for epoch in (0, 1, 9, 35, 36, 37, 1_300):
        ids = CountedIds(epoch)
        made += [ids.new_id() for _ in range(1_400)]
    assert len(set(made)) == len(made)
    assert made == sorted(made)
    assert all(re.fullmatch(r"[a-z0-9]{4,8}", one) for one in made)
