"""Edits of a JSONC file keep every byte that is not theirs."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from optchat.hosts.opencode import jsonc

ENTRY = ["file:///opt/x/optchat.js", {"command": ["python", "-m", "optchat"]}]
OURS = json.dumps(ENTRY)

# --- texts: any value, with any trivia between its tokens -----------------------------------------

_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_scalars = st.none() | st.booleans() | st.integers() | _text | st.sampled_from(["//", "/*", "*/"])
_values = st.recursive(
    _scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def documents(draw: st.DrawFn, *, with_plugins: bool | None = None) -> str:
    newline = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    blanks = ["", "", " ", "\t", newline, f"{newline}  "]
    remarks = [f" // x, ] }}{newline}", f"//{newline}", "/**/", " /* y, [ */ "]
    long_remarks = [f"/* {newline} */", '/* "plugin": [] */']
    pieces = st.sampled_from([*blanks, *remarks, *long_remarks])
    trivia = st.lists(pieces, max_size=2).map("".join)

    def render(value: Any) -> str:
        match value:
            case dict():
                items = [f"{json.dumps(k)}{draw(trivia)}:{draw(trivia)}{render(v)}"
                         for k, v in value.items()]  # fmt: skip
                return listed("{", items, "}")
            case list():
                return listed("[", [render(v) for v in value], "]")
            case _:
                return json.dumps(value, ensure_ascii=draw(st.booleans()))

    def listed(opening: str, items: list[str], closing: str) -> str:
        if not items:
            return f"{opening}{draw(trivia)}{closing}"
        end = draw(st.sampled_from(["", ","]))
        body = f"{draw(trivia)},{draw(trivia)}".join(items)
        return f"{opening}{draw(trivia)}{body}{draw(trivia)}{end}{draw(trivia)}{closing}"

    value = draw(st.dictionaries(_text.filter(lambda k: k != "plugin"), _values, max_size=3))
    if draw(st.booleans()) if with_plugins is None else with_plugins:
        members = [*value.items(), ("plugin", draw(st.lists(_values, max_size=3)))]
        value = dict(draw(st.permutations(members)))
    bom = draw(st.sampled_from(["", "\ufeff"]))
    return f"{bom}{draw(trivia)}{render(value)}{draw(trivia)}"


@given(documents())
def test_an_added_entry_is_the_only_change_and_goes_without_a_trace(text: str) -> None:
    before = jsonc.parse(text)
    added = jsonc.add(text, ENTRY)
    assert jsonc.parse(added) == before | {"plugin": [*before.get("plugin", []), ENTRY]}
    assert jsonc.remove(added, len(jsonc.entries(added) or ()) - 1) == text


@given(documents())
def test_adding_only_inserts(text: str) -> None:
    rest = iter(jsonc.add(text, ENTRY))
    assert all(char in rest for char in text)


@given(documents(with_plugins=True), st.data())
def test_any_entry_can_be_taken_out_or_replaced(text: str, data: st.DataObject) -> None:
    before = jsonc.parse(text)
    values = before["plugin"]
    if not values:
        return
    index = data.draw(st.integers(0, len(values) - 1))
    replaced = jsonc.replace(text, index, ENTRY)
    assert jsonc.parse(replaced)["plugin"] == [*values[:index], ENTRY, *values[index + 1 :]]
    left = [*values[:index], *values[index + 1 :]]
    removed = jsonc.parse(jsonc.remove(text, index))
    assert removed.get("plugin", []) == left
    assert {**removed, "plugin": left} == before | {"plugin": left}


@given(st.text(alphabet='{}[],:"/*\\ \n1ae-.\ufeff', max_size=24))
def test_any_text_is_read_or_refused_with_a_place(text: str) -> None:
    try:
        jsonc.parse(text)
    except jsonc.JsoncError as error:
        lines = re.split(r"\r\n|\n|\r", text.removeprefix("\ufeff"))
        at_a_place = (
            0 < error.line <= len(lines) and 0 < error.column <= len(lines[error.line - 1]) + 1
        )
    else:
        at_a_place = True
    assert at_a_place


@given(_values)
def test_plain_json_reads_as_json(value: Any) -> None:
    assert jsonc.parse(json.dumps(value)) == value


# --- what it looks like ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "before,after",
    [
        ("{}", f'{{\n  "plugin": [\n    {OURS}\n  ]\n}}'),
        ('{\n  "a": 1\n}\n', f'{{\n  "a": 1,\n  "plugin": [\n    {OURS}\n  ]\n}}\n'),
        ('{\n\t"a": 1, // x\n}', f'{{\n\t"a": 1, // x\n\t"plugin": [\n\t\t{OURS}\n\t],\n}}'),
        ('{"a": 1}', f'{{"a": 1, "plugin": [ {OURS} ]}}'),
        ('{"plugin": []}', f'{{"plugin": [{OURS}]}}'),
        ('{"plugin": ["a"]}', f'{{"plugin": ["a", {OURS}]}}'),
        ('{"plugin": ["a",]}', f'{{"plugin": ["a", {OURS},]}}'),
        (
            '{\r\n  "plugin": [\r\n    "a" // first\r\n  ]\r\n}',
            f'{{\r\n  "plugin": [\r\n    "a", // first\r\n    {OURS}\r\n  ]\r\n}}',
        ),
    ],
)
def test_an_entry_stands_as_its_neighbours_do(before: str, after: str) -> None:
    assert jsonc.add(before, ENTRY) == after
    assert jsonc.remove(after, len(jsonc.entries(after) or ()) - 1) == before


@pytest.mark.parametrize(
    "text,line,column",
    [
        ("", 1, 1),
        ("[]", 1, 1),
        ('{"plugin": {}}', 1, 12),
        ('{"plugin": [],\n "plugin": []}', 2, 2),
        ('{\n  "a": tru\n}', 2, 8),
        ('{\r\n  "a": 1\r\n  "b": 2}', 3, 3),
        ('\ufeff{"a": 1} x', 1, 10),
        ('{"a": 1, /* no end', 1, 10),
        ('{"a": "no end\n"}', 1, 7),
        ('{"a": [,]}', 1, 8),
        ("{a: 1}", 1, 2),
        ("{'a': 1}", 1, 2),
        ('{"a": 01}', 1, 8),
        ('{"a": ' + "[" * 300 + "]" * 300 + "}", 1, 207),
        ('{"a": ' + "1" * 5000 + "}", 1, 7),
    ],
)
def test_what_does_not_parse_is_refused_with_its_place(text: str, line: int, column: int) -> None:
    with pytest.raises(jsonc.JsoncError) as caught:
        jsonc.add(text, ENTRY)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert f"line {line}, column {column}" in str(caught.value)


@pytest.mark.parametrize(
    "text", ['{"plugin": ["a", // x\n"b"]}', '{"plugin": ["a", // x\n"b"/* \n */,\n]}']
)
def test_a_line_comment_never_swallows_what_follows_a_removed_entry(text: str) -> None:
    assert jsonc.parse(jsonc.remove(text, 1)) == {"plugin": ["a"]}
