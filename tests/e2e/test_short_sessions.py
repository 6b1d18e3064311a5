"""A short session is answered exactly as without us, plus the memory (§7)."""

from __future__ import annotations

import json

import pytest

from optchat.testing.captured import compact
from tests.e2e.support import bases, news, own_lines, twins, without_memory

# Both modules look at one pair of runs, which a worker makes once.
pytestmark = pytest.mark.timeout(240)


def test_until_something_folds_a_request_without_memory_is_the_host_s_own_byte_for_byte() -> None:
    """§7, architecture idea 4. The base, the news blocks and our tools are taken out, nothing else.

    Both runs are at the same paths, so nothing is normalised: every byte of the body is compared.
    What is taken out of a user's message of two parts leaves one, which the host's provider package
    writes as a plain string; ``without_memory`` does as it does.
    """
    plain, ours = twins()
    compared = 0
    for number in (0, 1):
        native, sent = plain.of(number), ours.of(number)
        assert len(native) == len(sent)
        assert len({base for request in sent for base in bases(request)}) == 1, "something folded"
        assert not own_lines(sent[-1])
        assert len(news(sent[-1])) >= 3
        for theirs, mine in zip(native, sent, strict=True):
            # What is compared is the bytes, not only what they say.
            assert compact(json.loads(theirs.raw)).encode() == theirs.raw
            assert compact(json.loads(mine.raw)).encode() == mine.raw
            assert compact(without_memory(mine)).encode() == theirs.raw
            compared += 1
    assert compared == 1 + 2 + 2 + 1 + 1 + 3 + 1


def test_a_title_request_is_the_host_s_own_byte_for_byte() -> None:
    """§13: native machinery is left alone; nothing has to be taken out."""
    plain, ours = twins()
    [theirs], [mine] = plain.of(0, "title"), ours.of(0, "title")
    assert mine.raw == theirs.raw
