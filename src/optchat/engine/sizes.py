"""The sizes that a host tells, as tokens; and the answer that leaves a request alone."""

from __future__ import annotations

from optchat.core.budget import MESSAGE_TOKENS, Sizes, Window, tokens
from optchat.wire import AssembleRequest, AssembleResponse, ModelInfo, ShapeMessage, SizesInfo

UNKNOWN_CONTEXT_TOKENS = 128_000
"""The window of a model of which the host knows none."""

OVERHEAD_GUESS_TOKENS = 12_000
"""Instructions and tools that nobody has measured yet; the pinned host's are about 10,000."""


def native(notice: str | None = None) -> AssembleResponse:
    """Leave the request as it is."""
    return AssembleResponse(state="native", notice=notice)


def sizes_of(info: SizesInfo) -> Sizes:
    return Sizes(
        letters=info.letters,
        spaces=info.spaces,
        symbols=info.symbols,
        other_bytes=info.other_bytes,
        media=info.media,
    )


def message_tokens(message: ShapeMessage, factor: float) -> int:
    return tokens(sizes_of(message.sizes), factor) + MESSAGE_TOKENS


def overhead_tokens(request: AssembleRequest, usable: int, factor: float) -> int:
    measured = tokens(sizes_of(request.overhead), factor)
    if request.overhead_known:
        return measured
    return max(measured, min(OVERHEAD_GUESS_TOKENS, usable // 3))


def window_of(request: AssembleRequest) -> Window:
    """The limits of the model that the request goes to."""
    return window(request.model)


def window(model: ModelInfo) -> Window:
    """A model's limits. A host that knows none says 0, which must not stop every turn."""
    return Window(
        context_tokens=model.context_tokens or UNKNOWN_CONTEXT_TOKENS,
        output_tokens=model.output_tokens,
        input_tokens=model.input_tokens,
    )
