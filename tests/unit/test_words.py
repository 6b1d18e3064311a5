"""What is put into an index for a text (§8)."""

from __future__ import annotations

import re

from optchat.storage.words import CJK, indexed, spaced

EVERY = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def test_just_the_characters_of_scripts_without_spaces_are_words_of_their_own():
    own = re.compile(f"[{CJK}]")
    for character in EVERY:
        expected = f" {character} " if own.fullmatch(character) else character
        assert spaced(character) == expected
        assert spaced(f"é{character}") == f"é{expected}"


def test_the_parts_of_a_name_stand_once_behind_in_the_order_of_the_text():
    text = "HTTPServer of getUserName, then HTTPServer, userId2 and iPhone in lower case"
    parts = "HTTP Server . get User Name . user Id 2 . i Phone"
    assert indexed(text) == f"{text}\n{parts}"
    for plain in ("", "Nothing of it", "ALL CAPITALS", "lower_case and Upper_Case", "a" * 70 + "B"):
        assert indexed(plain) == plain
