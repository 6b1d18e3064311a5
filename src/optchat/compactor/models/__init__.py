"""The models that make summaries, behind one port."""

from optchat.compactor.models.deterministic import DeterministicModel, shorten
from optchat.compactor.models.port import (
    Absent,
    Call,
    ChatModel,
    Extractor,
    Message,
    Outcome,
    Purpose,
    Reply,
    SummaryModel,
    SummaryRequest,
    Usage,
)

__all__ = [
    "Absent",
    "Call",
    "ChatModel",
    "DeterministicModel",
    "Extractor",
    "Message",
    "Outcome",
    "Purpose",
    "Reply",
    "SummaryModel",
    "SummaryRequest",
    "Usage",
    "shorten",
]
