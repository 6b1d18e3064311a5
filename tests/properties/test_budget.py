"""Token counts never flatter, and a window is divided once (§7, I9, I10)."""

from __future__ import annotations

import math
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from optchat.core.budget import (
    Sizes,
    Window,
    calibrate,
    divide,
    measure,
    text_tokens,
    tokens,
    usable_tokens,
)
from optchat.testing.captured import count_text_tokens

TEXTS = st.one_of(
    st.text(),
    st.text(st.characters(codec="ascii")),
    st.text(st.sampled_from("日本語テキスト漢字")),
    st.text(st.sampled_from("😀👩‍💻🇩🇪❤️")),
    st.text(st.sampled_from('{}[]":,0123456789abcdef/_-')),
)

WORDS = st.lists(
    st.text(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), min_size=1, max_size=12), max_size=60
).map(" ".join)


def plain_sizes(text: str) -> Sizes:
    """The classes by the definition, a character at a time."""
    letters = spaces = symbols = others = 0
    for c in text:
        if "a" <= c <= "z" or "A" <= c <= "Z":
            letters += 1
        elif c in " \t\n\r":
            spaces += 1
        elif ord(c) < 128:
            symbols += 1
        else:
            others += 2 if ord(c) < 0x800 else 3 if ord(c) < 0x10000 else 4
    return Sizes(letters=letters, spaces=spaces, symbols=symbols, other_bytes=others)


@given(st.one_of(TEXTS, st.text(st.characters(categories=["Cs", "L", "So"]))))
def test_sizes_are_by_class_of_character(text: str):
    assert measure(text) == plain_sizes(text)


@given(TEXTS, TEXTS)
def test_sizes_of_parts_add_up(a: str, b: str):
    assert measure(a) + measure(b) == measure(a + b)


@given(TEXTS)
def test_an_estimate_never_passes_the_true_upper_bound(text: str):
    """Tokens are at most UTF-8 bytes; an estimate above that would only waste the window."""
    assert text_tokens(text) <= len(text.encode("utf-8", "surrogatepass")) + 1


@given(st.lists(TEXTS, max_size=4))
def test_a_stricter_count_is_over_by_no_more_than_calibration_can_take(texts: list[str]):
    """The provider that tests use counts by another rule; the factor reaches 4 (§7)."""
    text = " ".join(texts)
    strict = count_text_tokens(text)
    assert strict <= text_tokens(text) * 4


@given(WORDS)
def test_prose_is_counted_at_least_as_a_quarter_of_its_letters(text: str):
    letters = sum(c.isalpha() for c in text)
    assert text_tokens(text) >= letters * 0.25


@given(st.text(st.characters(min_codepoint=0x3041, max_codepoint=0xD7A3)))
def test_scripts_without_spaces_cost_more_than_a_token_a_character(text: str):
    kept = "".join(c for c in text if unicodedata.category(c) == "Lo")
    assert text_tokens(kept) >= len(kept)


@given(TEXTS, st.floats(0.5, 4), st.floats(0.5, 4))
def test_a_larger_factor_never_counts_less(text: str, a: float, b: float):
    low, high = sorted((a, b))
    assert tokens(measure(text), low) <= tokens(measure(text), high)


@given(
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.floats(0.01, 0.99),
)
def test_a_division_never_exceeds_what_is_there_and_wastes_nothing(
    available: int, shared_need: int, own_need: int, part: float
):
    budget = divide(available, shared_need=shared_need, own_need=own_need, shared_part=part)
    assert 0 <= budget.shared <= shared_need
    assert 0 <= budget.own <= own_need
    assert budget.shared + budget.own <= available
    # What one side does not need moves to the other: something is unused only when both are met.
    assert budget.shared + budget.own == min(available, shared_need + own_need)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(0.01, 0.99))
def test_each_side_has_its_initial_part_when_both_want_more(
    available: int, extra: int, part: float
):
    need = available + extra
    budget = divide(available, shared_need=need, own_need=need, shared_part=part)
    assert budget.shared == int(available * part)
    assert budget.own == available - budget.shared


@given(st.floats(0.5, 4), st.integers(0, 10**7), st.integers(0, 10**7))
def test_calibration_stays_within_bounds_and_moves_towards_what_was_seen(
    factor: float, estimated: int, reported: int
):
    after = calibrate(factor, estimated=estimated, reported=reported)
    assert 0.5 <= after <= 4
    if estimated and reported:
        if reported > estimated:
            assert after >= factor
        if reported < estimated:
            assert after <= factor
        if reported > estimated and reported / estimated * factor <= 4:
            assert math.isclose(after, reported / estimated * factor), "an under-count at once"
        if reported < estimated:
            # An over-count slowly: a fifth of the way.
            assert after >= factor * 0.8 - 1e-9
    else:
        assert after == factor


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.one_of(st.none(), st.integers(0, 10**6)))
def test_what_is_usable_leaves_output_and_reserve(context: int, output: int, limit: int | None):
    window = Window(context_tokens=context, output_tokens=output, input_tokens=limit)
    usable = usable_tokens(window)
    assert 0 <= usable <= max(0, context - min(output, 32_000))
    assert usable == 0 or usable <= context * 0.95
    if limit is not None:
        assert usable <= limit
