"""The benchmarks' copies of real sessions: other identifiers, the same shape, no payload twice."""

from __future__ import annotations

import re

from bench._corpus import varied
from bench._tables import replace_section
from optchat.evaluation.files import Message, Session, Text, Tool
from optchat.evaluation.plain import documents

SESSION = Session(
    id="s",
    title="look at parseConfig",
    messages=[
        Message(
            id="m",
            role="assistant",
            parts=[
                Text(id="p", text="call parse_config(4711) again"),
                Text(id="q", text="no name at all"),
                Tool(id="t", tool="bash", input={"command": "ls"}, output="main_test.go 120 KB"),
                Tool(id="u", tool="read", input={"filePath": "/a/b"}, error="no such file"),
            ],
        )
    ],
)


def test_copies_share_no_payload_and_keep_their_lengths():
    assert varied(SESSION, 0) is SESSION
    made = [list(documents([varied(SESSION, copy)])) for copy in range(4)]
    texts = [document.text for documents_ in made for document in documents_]
    assert len(texts) == len(set(texts))
    for documents_ in made[1:]:
        assert re.fullmatch(r"call parse_con[a-z]{3}\(4\d{3}\) again", documents_[1].text)
    ids = {p.id for c in range(4) for m in varied(SESSION, c).messages for p in m.parts}
    assert len(ids) == 16
    assert varied(SESSION, 2) == varied(SESSION, 2)


def test_a_table_goes_between_its_marks(tmp_path):
    path = tmp_path / "doc.md"
    path.write_text("a\n<!-- t: begin -->\nold\n<!-- t: end -->\nb\n")
    replace_section("t", ["new \\1"], path)
    assert path.read_text() == "a\n<!-- t: begin -->\nnew \\1\n<!-- t: end -->\nb\n"
