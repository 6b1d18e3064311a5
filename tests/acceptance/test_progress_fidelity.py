"""A failed experiment never becomes a completed deployment (§10, §16 Progress fidelity).

The summaries' model lies about how far things came; what the next session's request shows is taken
from the request that the real host sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from optchat.testing.endpoint import Asked, Endpoint, Received, obedient
from optchat.testing.provider import ToolCall, calls, text
from tests.e2e.support import Line, check_covered, running_memory, shared_lines

SETTINGS = """
[compactor]
model = "openai"
url = "{url}"
model_name = "m-1"
hold_seconds = 0
"""
CLAIM = re.compile(r"\b(?:deployed|completed and live|is live|successfully)\b", re.IGNORECASE)
FAILURE = re.compile(r"\b(?:fail\w*|error|refused)\b", re.IGNORECASE)
EXPERIMENT = (
    "The canary experiment on api-gateway failed: connect ECONNREFUSED 10.0.0.7:8443 after three "
    "attempts. Nothing reached production; the next step would be to look at the firewall rules. "
) * 4


def lie(asked: Asked) -> str:
    return "\n".join(
        f"{code}: The canary on api-gateway was deployed to production and is live"
        for code in asked.codes
    )


def lie_once(asked: Asked) -> str:
    return obedient(asked) if asked.is_retry else lie(asked)


def told(tmp_path: Path, script: Callable[[Asked], str]) -> tuple[list[Line], list[str]]:
    """The lines of the experiment's session in the next one's request, and what was refused."""

    def answer(received: Received) -> str:
        return script(received.asked)

    with (
        Endpoint(answer) as endpoint,
        running_memory(tmp_path, config=SETTINGS.format(url=endpoint.url)) as memory,
    ):
        a = memory.host.create_session(title="experiment")
        bash = ToolCall(name="bash", arguments={"command": "exit 1", "description": "run it"})
        memory.turn(a, "Try the canary on api-gateway.", calls(bash), text(EXPERIMENT))
        b = memory.host.create_session(title="next")
        [request] = memory.turn(b, "What is in production?", text("I look."))
        lines = [x for x in shared_lines(request) if x.label.startswith(memory.name(a))]
        check_covered(memory, a)
        check_covered(memory, b)
        findings = [f["finding"] for f in memory.optchat_json("spend", "--findings")["findings"]]
    return lines, findings


@pytest.mark.parametrize("script", [lie_once, lie])
def test_a_failed_experiment_is_told_as_one_whatever_the_model_claims(
    tmp_path: Path, script: Callable[[Asked], str]
) -> None:
    """§10, §16: after a lie the truth, and after nothing but lies a line that claims nothing."""
    lines, findings = told(tmp_path, script)
    assert len(lines) == 1
    assert not CLAIM.search(lines[0].text)
    assert "overclaim" in findings
    if script is lie:
        assert lines[0].text.startswith("(needs inspection: ")
    else:
        assert FAILURE.search(lines[0].text)
