"""What kind of evidence a hit is, and so who wrote it (§8, §11).

Names of tools are a host's: what is listed here is known to read files, fetch pages or load skills;
another tool's result is a tool's output, which claims less.
"""

from __future__ import annotations

from enum import StrEnum

from optchat.core.records import Record, RecordKind


class Evidence(StrEnum):
    HUMAN = "human"  # typed by the person
    INJECTED = "injected"  # put into the person's message by a host or a plugin
    DELEGATED = "delegated"  # what an agent asked of a subagent
    MODEL = "model"
    TOOL_INPUT = "tool_input"
    TOOL_OUTPUT = "tool_output"
    FILE_READ = "file_read"
    WEB_FETCH = "web_fetch"
    SKILL = "skill"
    TITLE = "title"
    UNKNOWN = "unknown"  # a user's message in a session of which it is not known who leads it


_OF_TOOL = {
    "read": Evidence.FILE_READ,
    "view": Evidence.FILE_READ,
    "webfetch": Evidence.WEB_FETCH,
    "web_fetch": Evidence.WEB_FETCH,
    "fetch": Evidence.WEB_FETCH,
    "skill": Evidence.SKILL,
}

AUTHORS = {
    "user": frozenset({Evidence.HUMAN, Evidence.INJECTED, Evidence.DELEGATED, Evidence.UNKNOWN}),
    "assistant": frozenset({Evidence.MODEL, Evidence.TOOL_INPUT}),
    "tool": frozenset(
        {Evidence.TOOL_OUTPUT, Evidence.FILE_READ, Evidence.WEB_FETCH, Evidence.SKILL}
    ),
}
"""What stands under each role. A role tells who a host says speaks; the evidence, who wrote."""


def evidence_of(record: Record, *, subagent: bool | None) -> Evidence:
    """The class of a record; ``subagent``: whether its session has a parent, None if not known."""
    return evidence_class(record.kind, record.tool, record.status, subagent=subagent)


def evidence_class(
    kind: RecordKind, tool: str | None, status: str | None, *, subagent: bool | None
) -> Evidence:
    """``evidence_of`` from the fields that decide it."""
    match kind:
        case RecordKind.USER:
            if status == "synthetic":
                return Evidence.INJECTED
            if subagent is None:
                return Evidence.UNKNOWN
            return Evidence.DELEGATED if subagent else Evidence.HUMAN
        case RecordKind.ASSISTANT | RecordKind.REPORT:
            return Evidence.MODEL
        case RecordKind.TOOL_CALL:
            return Evidence.TOOL_INPUT
        case RecordKind.TOOL_RESULT:
            # A failed call read and fetched nothing: what it says is the tool's own.
            known = _OF_TOOL.get((tool or "").lower()) if status == "completed" else None
            return known or Evidence.TOOL_OUTPUT
