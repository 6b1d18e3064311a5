"""Words by which a person refers to earlier work, and what of a message to look for (§8)."""

from __future__ import annotations

import re

_CUES: dict[str, tuple[str, ...]] = {
    "en": (
        "last time", "last week", "last session", "previous session", "earlier session",
        "other session", "as before", "like before", "same as before", "did we", "have we",
        "we decided", "we agreed", "we discussed", "we talked about", "we fixed", "we solved",
        "we tried", "we used", "we already", "i told you", "remember when", "do you remember",
        "remind me", "as we said", "the other day", "previously", "back then",
    ),
    "de": (
        "letztes mal", "letzte woche", "letzten mal", "wie damals", "damals", "wie vorher",
        "wie zuvor", "wie neulich", "neulich", "haben wir", "hatten wir", "wir hatten",
        "weißt du noch", "erinnerst du dich", "wie besprochen", "wie vereinbart",
        "in der anderen sitzung", "schon einmal", "schon mal",
    ),
    "fr": (
        "la dernière fois", "la semaine dernière", "comme avant", "comme la dernière",
        "avons-nous", "avions-nous", "on avait", "nous avions", "nous avons décidé",
        "on a décidé", "tu te souviens", "rappelle-moi", "précédemment", "l'autre jour",
        "comme convenu",
    ),
    "es": (
        "la última vez", "la vez pasada", "la semana pasada", "como antes", "habíamos",
        "decidimos", "acordamos", "te acuerdas", "recuerdas", "recuérdame", "anteriormente",
        "el otro día", "hablamos de", "ya arreglamos",
    ),
    "it": (
        "l'ultima volta", "la volta scorsa", "la settimana scorsa", "come prima", "avevamo",
        "abbiamo deciso", "ti ricordi", "ricordi quando", "ricordami", "in precedenza",
        "l'altro giorno", "come concordato",
    ),
    "pt": (
        "da última vez", "a última vez", "na semana passada", "como antes", "tínhamos",
        "decidimos", "combinamos", "você lembra", "lembra quando", "lembras-te", "me lembre",
        "anteriormente", "no outro dia",
    ),
    "nl": (
        "de vorige keer", "vorige keer", "vorige week", "net als eerder", "zoals eerder",
        "hadden we", "hebben we", "weet je nog", "herinner je", "eerder besproken",
        "laatst hebben", "zoals afgesproken",
    ),
    "ru": (
        "в прошлый раз", "на прошлой неделе", "как раньше", "как прежде", "мы решили",
        "мы договорились", "мы обсуждали", "мы исправили", "помнишь", "напомни", "ранее мы",
        "в тот раз",
    ),
    "zh": (
        "上次", "上一次", "上周", "之前", "以前", "我们决定", "我們決定", "我们讨论过",
        "我們討論過", "还记得", "還記得", "记得吗", "前几天", "前幾天",
    ),
    "ja": (
        "前回", "以前", "先週", "この前", "前に", "決めた", "覚えて", "思い出して", "この間",
        "前と同じ", "いつも通り",
    ),
    "ko": (
        "지난번", "저번에", "지난주", "이전에", "예전에", "전에", "결정했", "기억나", "기억해",
        "얼마 전",
    ),
}  # fmt: skip
"""Lower-cased, by language; whole words where a script parts its words by spaces."""

_SPACED = ("en", "de", "fr", "es", "it", "pt", "nl", "ru")
_CUE = re.compile(
    r"(?<!\w)(?:"
    + "|".join(re.escape(cue) for lang in _SPACED for cue in _CUES[lang])
    + r")(?!\w)|"
    + "|".join(re.escape(cue) for lang in ("zh", "ja", "ko") for cue in _CUES[lang])
)


def is_cued(text: str) -> bool:
    """Whether the text refers to earlier work."""
    return _CUE.search(_plain(text)) is not None


def without_cues(text: str) -> str:
    """The text without the words that only say that it is about earlier work."""
    return _CUE.sub(" ", _plain(text))


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text.lower().replace("’", "'"))
