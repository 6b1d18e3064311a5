"""Values of the host's JSON are read and written as its JavaScript does it (§3)."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from optchat.hosts.opencode.transcript import javascript

ECHO = """
const whole = (_, item) => (typeof item === "string" ? item.toWellFormed() : item);
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  process.stdout.write(`${JSON.stringify(JSON.stringify(JSON.parse(line), whole))}\n`);
});
"""
TEXTS = st.text(st.characters(codec=None), max_size=20)
"""With halves of pairs, controls and all else."""
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from((2**53, 2**53 + 1, -(2**53) - 1, 10**400, 1e21, 1e-7, -0.0)) | TEXTS
)  # fmt: skip
KEYS = st.text(max_size=9) | st.from_regex(r"[0-9]{1,11}", fullmatch=True)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(KEYS, inner, max_size=5)
)


@given(VALUES, st.booleans())
def test_what_is_read_is_what_any_parser_reads_with_whole_characters(value: Any, escaped: bool):
    text = json.dumps(value, ensure_ascii=escaped)
    expected = whole(json.loads(text))
    assert javascript.parse(text) == expected
    assert javascript.parse(text.encode("utf-8", "surrogatepass")) == expected


@pytest.fixture(scope="module")
def node() -> Generator[subprocess.Popen[str]]:
    with subprocess.Popen(
        ["node", "-e", ECHO], stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8"
    ) as process:
        yield process
        process.stdin.close()


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node")
@settings(deadline=None, max_examples=400)
@given(value=VALUES)
def test_what_is_written_is_what_node_writes(node: subprocess.Popen[str], value: Any):
    given = json.dumps(value)
    node.stdin.write(f"{given}\n")
    node.stdin.flush()
    assert javascript.stringify(javascript.parse(given)).decode() == json.loads(
        node.stdout.readline()
    )


def whole(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case list():
            return [whole(v) for v in value]
        case dict():
            return {whole(k): whole(v) for k, v in value.items()}
        case _:
            return value
