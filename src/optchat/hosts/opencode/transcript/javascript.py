"""Values as the host's JavaScript writes them, so that digests made here and there are the same."""

from __future__ import annotations

import json
import math
import re
import sys
from decimal import Decimal
from json.encoder import encode_basestring
from typing import Any, cast

import msgspec

_LONE = re.compile("[\ud800-\udfff]")
_EXACT_MAX = 2**53
_INDEX_MAX = 2**32 - 2
_PLAIN = frozenset({str, bool, type(None)})


def well_formed(text: str) -> str:
    """``text`` with halves of surrogate pairs replaced, as ``String.prototype.toWellFormed``."""
    return text if text.isascii() else _LONE.sub("\ufffd", text)


def parse(text: str | bytes) -> Any:
    """The value of JSON that a JavaScript wrote; every string in it is well formed."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError):  # half of a pair, or a number out of range
        return _with_whole_texts(json.loads(text))


def stringify(value: Any) -> bytes:
    """``value`` as ``JSON.stringify`` writes it, its numbers and its order of keys, in UTF-8."""
    return _encode(value) if _is_usual(value) else _written(value).encode()


_encode = msgspec.json.Encoder().encode


def _is_usual(value: Any) -> bool:
    """Whether a value is written in the same way by every writer, strings included."""
    pending = [value]
    for found in pending:
        kind = found.__class__
        if kind is dict:
            for key, inner in found.items():
                if ":" > key >= "0":  # begins with a digit
                    return False
                if inner.__class__ not in _PLAIN:
                    pending.append(inner)
        elif kind is list:
            pending += found
        elif kind is int:
            if not -_EXACT_MAX <= found <= _EXACT_MAX:
                return False
        elif kind not in _PLAIN:
            return False
    return True


def _written(value: Any) -> str:
    match value:
        case str():
            return encode_basestring(value)
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case int() if abs(value) <= _EXACT_MAX:
            return str(value)
        case int() if abs(value) > sys.float_info.max:
            return "null"  # read as infinite
        case int() | float():
            return number(float(value))
        case list() | tuple():
            return f"[{','.join(map(_written, cast('list[Any]', value)))}]"
        case _:
            found = cast("dict[str, Any]", value)
            first = sorted((k for k in found if _is_index(k)), key=int)
            keys = [*first, *(k for k in found if not _is_index(k))] if first else found
            return f"{{{','.join(f'{encode_basestring(k)}:{_written(found[k])}' for k in keys)}}}"


def _with_whole_texts(value: Any) -> Any:
    match value:
        case str():
            return well_formed(value)
        case list():
            return [_with_whole_texts(v) for v in cast("list[Any]", value)]
        case dict():
            found = cast("dict[str, Any]", value)
            return {well_formed(k): _with_whole_texts(v) for k, v in found.items()}
        case _:
            return value


def _is_index(key: str) -> bool:
    """Whether an object's key is one that JavaScript puts first, by its number."""
    return key.isascii() and key.isdigit() and str(int(key)) == key and int(key) <= _INDEX_MAX


def number(value: float) -> str:
    """The shortest text that reads back as ``value``, in JavaScript's form."""
    if not math.isfinite(value):
        return "null"
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(float.__repr__(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = len(digits) + int(exponent)  # where the point stands in the digits
    minus = "-" if sign else ""
    if 0 < point <= 21:
        whole = text.ljust(point, "0")[:point]
        part = text[point:]
        return f"{minus}{whole}{'.' + part if part else ''}"
    if -6 < point <= 0:
        return f"{minus}0.{'0' * -point}{text}"
    rest = f".{text[1:]}" if len(text) > 1 else ""
    power = point - 1
    return f"{minus}{text[0]}{rest}e{'+' if power > 0 else '-'}{abs(power)}"
