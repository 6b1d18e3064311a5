"""What each thing counts for in ranking (§8)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from optchat.core.evidence import Evidence
from optchat.storage.ports.frame import EVIDENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """What each thing counts for.

    Tuned on three of LoCoMo's ten conversations, and on distractors of seeds of our own.
    """

    k1: float = 0.9
    b: float = 0.6
    wide_k1: float = 1.5  # of texts that are wider than a record
    wide_b: float = 0.9
    near: float = 0.3  # the record with one on each side
    around: float = 0.7  # with three
    session: float = 0.8
    project: float = 1.5
    complete: float = 0.2  # all the words are in the record
    close: float = 0.6  # two of them stand side by side
    reach: float = 3.0  # at one and so many words between them it counts half
    ordered: float = 0.6  # two that follow one another in the query do so here
    titled: float = 3.0  # they are in the session's title, or in its project's name
    told: float = 0.7  # a title or a summary is no evidence: what it tells of goes before it
    failed: float = 1.7  # the record is what a call failed with


WEIGHTS = Weights()

_CLASS = {
    Evidence.HUMAN: 1.02,
    Evidence.MODEL: 1.0,
    Evidence.DELEGATED: 0.95,
    Evidence.TOOL_INPUT: 1.0,
    Evidence.UNKNOWN: 0.95,
    Evidence.INJECTED: 0.7,
    Evidence.TOOL_OUTPUT: 0.75,
    Evidence.FILE_READ: 0.6,
    Evidence.WEB_FETCH: 0.6,
    Evidence.SKILL: 0.4,
}
CLASS_WEIGHTS = np.array([_CLASS.get(e, 1.0) for e in EVIDENCE], np.float32)
