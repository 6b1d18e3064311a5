"""Who wrote what a hit shows; what is not known is never passed off as a person's (§8, §11)."""

from __future__ import annotations

import pytest

from optchat.core.evidence import AUTHORS, Evidence, evidence_class
from optchat.core.records import RecordKind


@pytest.mark.parametrize(
    "kind, tool, status, subagent, expected",
    [
        ("user", None, None, False, Evidence.HUMAN),
        ("user", None, None, True, Evidence.DELEGATED),
        ("user", None, None, None, Evidence.UNKNOWN),
        ("user", None, "synthetic", False, Evidence.INJECTED),
        ("user", None, "synthetic", None, Evidence.INJECTED),
        ("assistant", None, None, False, Evidence.MODEL),
        ("report", "task", "completed", False, Evidence.MODEL),
        ("tool_call", "read", None, False, Evidence.TOOL_INPUT),
        ("tool_result", "bash", "completed", False, Evidence.TOOL_OUTPUT),
        ("tool_result", "Read", "completed", None, Evidence.FILE_READ),
        ("tool_result", "read", "error", None, Evidence.TOOL_OUTPUT),
        ("tool_result", "webfetch", "completed", None, Evidence.WEB_FETCH),
        ("tool_result", "skill", "completed", None, Evidence.SKILL),
        ("tool_result", None, None, None, Evidence.TOOL_OUTPUT),
    ],
)
def test_evidence_is_told_from_the_record_alone(kind, tool, status, subagent, expected):
    assert evidence_class(RecordKind(kind), tool, status, subagent=subagent) is expected


def test_each_class_of_a_record_stands_under_exactly_one_role():
    placed = [evidence for found in AUTHORS.values() for evidence in found]
    assert sorted(placed) == sorted(set(Evidence) - {Evidence.TITLE})
