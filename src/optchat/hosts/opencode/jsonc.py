"""Adding to the ``plugin`` list of a JSONC file, and taking out again, keeping every other byte.

JSONC as the host reads it: JSON with ``//`` and ``/* */`` comments, trailing commas and a byte
order mark. An edit is a few insertions or deletions; nothing is formatted anew. Taking out what was
added gives the same text again, without a note of how it looked before, because the forms differ:

- a list of ours, where there was no ``plugin`` key: white space follows the opening bracket, and
  the list holds one entry and no comment. Key and list go together.
- an entry in a list that was empty: directly behind the bracket. Only the entry goes.
- an entry behind others: whether the list ends in a comma is kept both ways.

What does not parse is refused with its line and column; a half-understood file is never written.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, Never

from optchat.errors import BadInput

KEY = "plugin"
DEPTH_MAX = 200
DEFAULT_INDENT = "  "

_BLANK = re.compile(r"[ \t\r\n]*")
_COMMENT = re.compile(r"//[^\r\n]*|/\*.*?\*/", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SCALAR = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")
_REST_OF_LINE_BLANK = re.compile(r"[ \t]*(?:[\r\n]|\Z)")


class JsoncError(BadInput):
    """No JSONC, or no place for a plugin entry; ``line`` and ``column`` count from 1."""

    code = "jsonc"

    def __init__(self, reason: str, *, line: int, column: int) -> None:
        super().__init__(f"line {line}, column {column}: {reason}")
        self.reason = reason
        self.line = line
        self.column = column


@dataclass(frozen=True, slots=True)
class _Item:
    """An element, or a member with its key, and the place of the comma behind it."""

    start: int
    end: int
    key: str | None
    value: _Node
    comma: int | None


@dataclass(frozen=True, slots=True)
class _Node:
    start: int
    end: int
    value: Any
    items: tuple[_Item, ...] = ()


@dataclass(frozen=True, slots=True)
class _Document:
    text: str
    root: _Node
    plugins: _Item | None
    token_ends: list[int]
    comments: dict[int, int]  # start → end


def parse(text: str) -> Any:
    """The value of a JSONC text. Of a key that is there twice the last stands, as in the host.

    Raises:
        JsoncError: the text is no JSONC.
    """
    return _Scanner(text).document().value


def entries(text: str) -> tuple[Any, ...] | None:
    """The values in the top-level ``plugin`` list, or None if there is no such key.

    Raises:
        JsoncError: no JSONC, not an object, or ``plugin`` is no list or there twice.
    """
    plugins = _read(text).plugins
    return None if plugins is None else tuple(plugins.value.value)


def add(text: str, entry: Any) -> str:
    """The text with ``entry`` as the last of the ``plugin`` list, which is made if missing."""
    document = _read(text)
    rendered = _render(entry)
    if document.plugins is not None:
        edits = _append(document, document.plugins.value, rendered, rendered)
    else:
        newline = _newline(text)
        indent = _indent(document, document.root) or DEFAULT_INDENT
        lines = f'"{KEY}": [{newline}{indent * 2}{rendered}{newline}{indent}]'
        edits = _append(document, document.root, lines, f'"{KEY}": [ {rendered} ]')
    expected = [*(entries(text) or ()), entry]
    return _checked(_apply(text, edits), text, expected)


def replace(text: str, index: int, entry: Any) -> str:
    """The text with ``entry`` in the place of the ``index``-th of the ``plugin`` list."""
    item, values = _entry(text, index)
    values[index] = entry
    return _checked(_apply(text, [(item.start, item.end, _render(entry))]), text, values)


def remove(text: str, index: int) -> str:
    """The text without the ``index``-th of the ``plugin`` list; a list that `add` made goes too."""
    document = _read(text)
    item, values = _entry(text, index)
    del values[index]
    assert document.plugins is not None
    plugins = document.plugins.value
    if _stands_apart(text, plugins, item):
        edits = _take_out(document, document.root, document.root.items.index(document.plugins))
        return _checked(_apply(text, edits), text, None)
    return _checked(_apply(text, _take_out(document, plugins, index)), text, values)


# --- edits ----------------------------------------------------------------------------------------

_Edit = tuple[int, int, str]


def _append(document: _Document, parent: _Node, in_lines: str, in_one_line: str) -> list[_Edit]:
    """Put an item last, in the form that its neighbours have: on lines of their own, or on one."""
    text, newline = document.text, _newline(document.text)
    if not parent.items:
        inside = parent.start + 1
        if inside == parent.end - 1 and text[parent.start] == "{":
            return [(inside, inside, f"{newline}{DEFAULT_INDENT}{in_lines}{newline}")]
        return [(inside, inside, in_one_line)]

    last = parent.items[-1]
    trailing = last.comma is not None
    edits: list[_Edit] = [] if trailing else [(last.end, last.end, ",")]
    place, after_line_comment = _after_remarks(
        document, last.end if last.comma is None else last.comma + 1
    )
    indent = _indent(document, parent)
    if indent is None and not after_line_comment:
        item, lead = in_one_line, " "
    else:
        item, lead = in_lines, newline + (DEFAULT_INDENT if indent is None else indent)
    edits.append((place, place, f"{lead}{item}{',' if trailing else ''}"))
    return edits


def _take_out(document: _Document, parent: _Node, index: int) -> list[_Edit]:
    """Take an item out with its comma, or with the comma before it if it has none."""
    text = document.text
    item = parent.items[index]
    comma: list[_Edit] = [] if item.comma is None else [(item.comma, item.comma + 1, "")]

    if len(parent.items) == 1:
        if text[parent.start] == "{" and _stands_apart(text, parent, item):
            return [(parent.start + 1, parent.end - 1, "")]
        return [(item.start, item.end, ""), *comma]

    if index == 0:
        assert item.comma is not None
        gap = _BLANK.match(text, item.comma + 1)
        assert gap is not None
        return [(item.start, item.end, ""), (item.comma, gap.end(), "")]

    before = parent.items[index - 1]
    assert before.comma is not None
    start = document.token_ends[bisect_right(document.token_ends, item.start) - 1]
    end = item.end + 1 if item.comma == item.end else item.end
    line_comment = any(
        close == start and text.startswith("//", open_)
        for open_, close in document.comments.items()
    )
    if line_comment and _REST_OF_LINE_BLANK.match(text, end) is None:
        start = item.start  # else what follows would become part of the comment
    edits: list[_Edit] = [(start, item.end, ""), *comma]
    if item.comma is None:
        edits.append((before.comma, before.comma + 1, ""))
    return edits


def _after_remarks(document: _Document, place: int) -> tuple[int, bool]:
    """Where the comments on this line end, and whether the last of them is a line comment."""
    text, line_comment = document.text, False
    while True:
        start = place + len(text[place:]) - len(text[place:].lstrip(" \t"))
        end = document.comments.get(start)
        if end is None or "\n" in text[start:end] or "\r" in text[start:end]:
            return place, line_comment
        place, line_comment = end, text.startswith("//", start)


def _stands_apart(text: str, parent: _Node, item: _Item) -> bool:
    """Whether an item is alone, off the opening bracket, and nothing but white space around it."""
    before, after = text[parent.start + 1 : item.start], text[item.end : parent.end - 1]
    return before != "" and not (before + after).strip(" \t\r\n")


def _indent(document: _Document, parent: _Node) -> str | None:
    """What stands before the parent's last item on its line, or None if something else does."""
    if not parent.items:
        return None
    text, start = document.text, parent.items[-1].start
    line = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    lead = text[line:start]
    return lead if line and not lead.strip(" \t") else None


def _newline(text: str) -> str:
    found = re.search(r"\r\n|\n|\r", text)
    return found.group() if found else "\n"


def _render(entry: Any) -> str:
    return json.dumps(entry, ensure_ascii=False, allow_nan=False)


def _apply(text: str, edits: list[_Edit]) -> str:
    """Make the edits, which do not overlap; those at one place in the order given."""
    parts: list[str] = []
    done = 0
    for start, end, new in sorted(edits, key=lambda edit: edit[0]):
        parts += [text[done:start], new]
        done = end
    return "".join([*parts, text[done:]])


def _checked(edited: str, before: str, expected: list[Any] | None) -> str:
    """The edited text, which must read as the old value with only the list changed."""
    wanted = {key: value for key, value in parse(before).items() if key != KEY}
    if expected is not None:
        wanted[KEY] = expected
    assert parse(edited) == wanted, "an edit changed more than the plugin list"
    return edited


# --- reading --------------------------------------------------------------------------------------


def _read(text: str) -> _Document:
    scanner = _Scanner(text)
    root = scanner.document()
    if text[root.start] != "{":
        scanner.fail("expected an object", root.start)
    found = [item for item in root.items if item.key == KEY]
    if len(found) > 1:
        scanner.fail(f'"{KEY}" is there twice', found[1].start)
    if found and text[found[0].value.start] != "[":
        scanner.fail(f'"{KEY}" is no list', found[0].value.start)
    plugins = found[0] if found else None
    return _Document(text, root, plugins, scanner.token_ends, scanner.comments)


def _entry(text: str, index: int) -> tuple[_Item, list[Any]]:
    plugins = _read(text).plugins
    if plugins is None or not 0 <= index < len(plugins.value.items):
        raise IndexError(index)
    return plugins.value.items[index], list(plugins.value.value)


class _Scanner:
    """A recursive descent over the text, which remembers where each token ended."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 1 if text.startswith("\ufeff") else 0
        self.token_ends: list[int] = []
        self.comments: dict[int, int] = {}

    def document(self) -> _Node:
        self._skip()
        root = self._value(0)
        self._skip()
        if self.position < len(self.text):
            self.fail("expected the end of the file", self.position)
        return root

    def fail(self, reason: str, position: int) -> Never:
        lines = re.split(r"\r\n|\n|\r", self.text[:position].removeprefix("\ufeff"))
        raise JsoncError(reason, line=len(lines), column=len(lines[-1]) + 1)

    def _skip(self) -> None:
        while True:
            blank = _BLANK.match(self.text, self.position)
            assert blank is not None
            self.position = blank.end()
            if not self.text.startswith(("//", "/*"), self.position):
                return
            comment = _COMMENT.match(self.text, self.position)
            if comment is None:
                self.fail("this comment does not end", self.position)
            self.comments[comment.start()] = comment.end()
            self._take(comment.end())

    def _take(self, end: int) -> None:
        self.position = end
        self.token_ends.append(end)

    def _next_is(self, mark: str) -> bool:
        if not self.text.startswith(mark, self.position):
            return False
        self._take(self.position + 1)
        return True

    def _value(self, depth: int) -> _Node:
        start = self.position
        if depth > DEPTH_MAX:
            self.fail(f"nested deeper than {DEPTH_MAX}", start)
        if self._next_is("{"):
            items = self._items("}", depth)
            return _Node(start, self.position, {i.key: i.value.value for i in items}, items)
        if self._next_is("["):
            items = self._items("]", depth)
            return _Node(start, self.position, [i.value.value for i in items], items)
        if self.text.startswith('"', start):
            string = self._string()
            return _Node(start, self.position, string)
        scalar = _SCALAR.match(self.text, start)
        if scalar is None:
            self.fail("expected a value", start)
        try:
            value = json.loads(scalar.group())
        except ValueError:  # an integer of thousands of digits
            self.fail("this number is too long", start)
        self._take(scalar.end())
        return _Node(start, self.position, value)

    def _string(self) -> str:
        string = _STRING.match(self.text, self.position)
        if string is None:
            self.fail("this string does not end or holds a bad character", self.position)
        self._take(string.end())
        return json.loads(string.group())

    def _items(self, close: str, depth: int) -> tuple[_Item, ...]:
        items: list[_Item] = []
        self._skip()
        while not self._next_is(close):
            start, key = self.position, None
            if close == "}":
                if not self.text.startswith('"', start):
                    self.fail('expected a key in quotes or "}"', start)
                key = self._string()
                self._skip()
                if not self._next_is(":"):
                    self.fail('expected ":"', self.position)
                self._skip()
            value = self._value(depth + 1)
            self._skip()
            comma = self.position - 1 if self._next_is(",") else None
            items.append(_Item(start, value.end, key, value, comma))
            self._skip()
            if comma is None and not self.text.startswith(close, self.position):
                self.fail(f'expected "," or "{close}"', self.position)
        return tuple(items)
