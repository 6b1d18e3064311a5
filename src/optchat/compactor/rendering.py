"""A call's bytes: instructions, earlier lines, the fresh part, the task; and what is said again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from optchat.compactor.admission import Finding
from optchat.compactor.items import Item
from optchat.compactor.models import Call, Message
from optchat.compactor.prompts import prompts
from optchat.refs import ScopeId

LINE_TOKENS = 220
"""512 bytes of the most expensive script and a code."""

THINKING_TOKENS = 1_500
"""Room for a model that thinks before it writes."""

AGAIN_TEMPERATURE = 0.5
"""Enough to leave a beaten track, not enough to lose names."""


def first_call(
    items: Sequence[Item],
    *,
    purpose: str,
    earlier: str,
    foreign: str,
    scope_id: ScopeId,
    output_tokens_max: int,
    again: bool,
) -> Call:
    """The first message of a conversation; ``again`` when an earlier one came to nothing.

    What is stable stands first: the instructions are the same in every call, and the earlier lines
    grow only at their end between the calls of one session.
    """
    stable = f"earlier:\n{earlier}" if earlier else ""
    fresh = "end of earlier\n\n" if earlier else ""
    if foreign:
        fresh += f"foreign:\n{foreign}end of foreign\n\n"
    fresh += "\n".join(item.rendered() for item in items)
    fresh += f"\nWrite: {' '.join(item.code for item in items)}\n"
    return Call(
        purpose=purpose,
        system=prompts().system,
        messages=(Message("user", stable + fresh, stable=len(stable)),),
        output_tokens_max=min(output_tokens_max, THINKING_TOKENS + LINE_TOKENS * len(items)),
        scope_id=scope_id,
        temperature=AGAIN_TEMPERATURE if again else 0.0,
    )


def same_call(call: Call) -> Call:
    """The same once more, after an answer that held nothing."""
    return replace(call, temperature=AGAIN_TEMPERATURE)


def next_call(call: Call, answer: str, wrong: Sequence[tuple[str, Sequence[Finding]]]) -> Call:
    """The same conversation, with the answer and what is wrong with some of its lines."""
    told = [f"{code}: {' '.join(_told(f) for f in found)}" for code, found in wrong]
    codes = " ".join(code for code, _ in wrong)
    text = "Some lines cannot be used:\n" + "\n".join(told) + f"\nWrite again, only: {codes}\n"
    first = call.messages[0]
    return replace(
        same_call(call),
        # The first message keeps its mark: a retry reads all of it from the cache.
        messages=(
            Message("user", first.text, stable=len(first.text)),
            *call.messages[1:],
            Message("assistant", said(answer)),
            Message("user", text),
        ),
    )


def said(answer: str) -> str:
    """An answer as it stands in the conversation that goes on."""
    return answer.strip() or "(no answer)"


def _told(finding: Finding) -> str:
    return prompts().findings[finding.name].format_map(finding.values)
