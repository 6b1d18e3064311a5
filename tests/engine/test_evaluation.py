"""The evaluation runs a set through ingestion, store and search, and leaves reasoning out."""

from __future__ import annotations

from typing import Any

from optchat.evaluation import run

TEXT = {"id": "p1", "type": "text", "text": "we chose the blue harbour crane"}
THOUGHT = {"id": "p2", "type": "reasoning", "text": "because of zanzibar"}


def case(name: str, query: str) -> dict[str, Any]:
    args = {"query": query, "group": "session"}
    return {"name": name, "args": args, "ctx_session": "none", "relevant": ["a"], "expect": {}}


def test_a_typo_a_stem_and_a_title_are_found_and_reasoning_is_not():
    def message(n: int, role: str, parts: list[Any]) -> dict[str, Any]:
        return {"id": f"m{n}", "role": role, "created": n, "parts": parts}

    session = {
        "id": "a",
        "title": "Quayside notes",
        "directory": "/w",
        "parent_id": None,
        "messages": [message(1, "user", [TEXT]), message(2, "assistant", [THOUGHT])],
    }
    cases = [
        case("typo #0", "harbuor crane"),
        case("stem #0", "cranes"),
        case("title #0", "quayside"),
        case("reasoning #0", "zanzibar"),
    ]
    figures = run.retrieval({"sessions": [session], "cases": cases})
    assert figures["mrr"] == 1.0
    assert figures["left_out_reasoning_only"] == ["reasoning #0"]
    assert figures["reasoning_found"] == []
