"""Which words refer to earlier work, in eleven languages (§8)."""

from __future__ import annotations

import pytest

from optchat.core.cues import is_cued, without_cues

CUED = [
    "How did we fix the redirect loop?",
    "same as before, but for nginx",
    "Do you remember the port?",
    "Wie hatten wir das damals gelöst?",
    "Weißt du noch, welcher Port es war?",
    "Comment avions-nous corrigé la boucle ?",
    "Fais comme la dernière fois",
    "¿Te acuerdas del puerto?",
    "La última vez funcionó",
    "Ti ricordi la porta?",
    "Come l’ultima volta",
    "Você lembra da porta?",
    "Como da última vez",
    "Weet je nog welke poort?",
    "Net als eerder",
    "Помнишь, какой порт?",
    "Как мы решили в прошлый раз?",
    "我们上次怎么修复重定向循环的?",
    "前回はどうしたっけ?",
    "지난번에 어떻게 했지?",
]
PLAIN = [
    "",
    "Add a persistent queue.",
    "Use the rememberme cookie",  # inside of a word is no cue
    "Schreibe einen Test",
    "Écris un test",
    "Escribe una prueba",
    "Scrivi un test",
    "Escreva um teste",
    "Schrijf een test",
    "Напиши тест",
    "写一个测试",
    "テストを書いて",
    "테스트를 작성해",
]


@pytest.mark.parametrize("text", CUED)
def test_a_reference_to_earlier_work_is_heard(text):
    assert is_cued(text)
    assert is_cued(text.upper().replace("SS", "ss")) or "ß" in text
    assert is_cued(text.replace(" ", "\n ", 1))


@pytest.mark.parametrize("text", PLAIN)
def test_a_plain_request_is_none(text):
    assert not is_cued(text)


def test_what_is_looked_for_is_what_is_left():
    assert without_cues("How did we fix the redirect loop?").split() == [
        "how", "fix", "the", "redirect", "loop?",
    ]  # fmt: skip
    assert "重定向循环" in without_cues("我们上次怎么修复重定向循环的?")
    assert "上次" not in without_cues("我们上次怎么修复重定向循环的?")
