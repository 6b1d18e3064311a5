"""What can be read off a text without a model: names, numbers, words, claims (§10).

English cues only for claims: in another language the checks on names, words and size still hold,
and a claim passes unseen.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

# --- names ---------------------------------------------------------------------------------------

_CODE = re.compile(r"`([^`\n]{2,120})`")
_NAME = re.compile(
    r"(?P<url>https?://[^\s\"'<>)\]]+)"
    r"|(?P<path>(?:[\w.~@+-]*/)+[\w.~@+*-]*\w)"
    r"|(?P<flag>(?<![\w-])--?[A-Za-z][\w-]*[A-Za-z\d])"
    r"|(?P<hash>\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b)"
    r"|(?P<file>\b[\w-]+(?:\.[\w-]+)*\.[A-Za-z][A-Za-z\d]{0,9}\b)"
    r"|(?P<symbol>\b(?:[A-Za-z]\w*_\w+|[a-z]+\d*[A-Z]\w*|[A-Z][a-z]+\d*[A-Z]\w*"
    r"|[A-Z]{1,}[A-Z_-]*\d\w*)\b)"
    r"|(?P<number>\d[\d.,:/-]*\d|\d{2,}|\d(?=(?:%|ms|s|kb|mb|gb|px|min|h)\b))",
)
_HASH = re.compile(r"[0-9a-f]{7,64}")
_GOES_ON = re.compile(r"(?!s(?![a-z\d_]))[a-z\d_]")
"""More of a name; an "s" behind it is only its plural."""

_ABBREVIATIONS = frozenset({"e.g", "i.e", "etc", "vs", "a.m", "p.m"})


def names(text: str) -> list[str]:
    """Paths, files, symbols, flags, hashes, code in backticks and numbers, in order, once each."""
    found: dict[str, None] = dict.fromkeys(m[1].strip() for m in _CODE.finditer(text))
    for word in text.replace("`", " ").split():
        # Most words are words, and the pattern is dear.
        plain = word.strip(".,:;!?()[]{}\"'")
        if plain.isalpha() and (plain.islower() or plain.istitle()):
            continue
        for match in _NAME.finditer(word):
            name = match[0].rstrip(".,:;")
            if name.lower() not in _ABBREVIATIONS and (len(name) > 1 or name.isdigit()):
                found.setdefault(name)
    return list(found)


def is_number(name: str) -> bool:
    return name[0].isdigit() and not any(c.isalpha() for c in name)


# --- words ---------------------------------------------------------------------------------------

_WORD = re.compile(r"[a-z][a-z\d]{3,}")
_OTHER = re.compile(r"[^\W\d_a-z]{2,}")
_COMMON = frozenset(
    [
        "about",
        "after",
        "again",
        "agent",
        "also",
        "although",
        "asked",
        "asks",
        "assistant",
        "because",
        "been",
        "before",
        "being",
        "between",
        "both",
        "but",
        "cannot",
        "could",
        "does",
        "done",
        "each",
        "file",
        "files",
        "first",
        "from",
        "further",
        "have",
        "having",
        "here",
        "into",
        "its",
        "itself",
        "just",
        "like",
        "made",
        "make",
        "makes",
        "many",
        "more",
        "most",
        "must",
        "need",
        "needs",
        "only",
        "other",
        "over",
        "result",
        "results",
        "same",
        "says",
        "should",
        "since",
        "some",
        "such",
        "than",
        "that",
        "their",
        "them",
        "then",
        "there",
        "these",
        "they",
        "this",
        "those",
        "through",
        "told",
        "tool",
        "under",
        "until",
        "user",
        "used",
        "uses",
        "using",
        "very",
        "want",
        "wants",
        "was",
        "were",
        "what",
        "when",
        "where",
        "which",
        "while",
        "will",
        "with",
        "within",
        "without",
        "would",
        "yet",
        "your",
        "person",
        "reports",
        "reported",
        "returned",
        "shows",
        "showed",
        "found",
        "states",
    ]
)
STEM = 5
"""Letters of a word that are compared, so that "deploying" and "deployed" are one."""


def words(text: str) -> set[str]:
    """The stems of the words that say something; letters of other scripts in pairs."""
    low = text.lower()
    found = {w[:STEM] for w in _WORD.findall(low) if w not in _COMMON}
    for run in _OTHER.findall(low):
        found.update(run[i : i + 2] for i in range(len(run) - 1))
    return found


# --- claims --------------------------------------------------------------------------------------

_POOLS: dict[str, str] = {
    "changed": r"implemented|built|created|added|wrote|written|updated|refactored|changed|removed"
    r"|deleted|renamed|replaced|installed|configured|migrated|moved|converted|introduced|rewrote"
    r"|rewritten|switched|enabled|disabled|upgraded|rolled back|reverted",
    "done": r"done|completed|complete|finished|ready|accomplished",
    "fixed": r"fixed|resolved|solved|repaired|corrected|cured",
    "working": r"works|working|pass|passes|passed|passing|succeeds|succeeded|successful"
    r"|successfully|green|is stable|runs fine",
    "verified": r"verified|confirmed|validated|proven|proved|tested|benchmarked",
    "deployed": r"deployed|rolled out|live|in production",
    "released": r"released|shipped|published|pushed|uploaded",
    "merged": r"merged|landed",
    "committed": r"committed",
    "decided": r"decided|decides|chose|chosen|chooses|agreed|agrees|approved|approves|accepted"
    r"|accepts|settled on|selected|adopted|ruled out|decision",
    "found": r"root cause(?: is| was)|the cause (?:is|was)|identified",
}
_GROUNDS: dict[str, tuple[str, ...]] = {
    "done": ("done", "changed", "fixed", "deployed", "released", "merged"),
    "fixed": ("fixed",),
    "verified": ("verified", "working"),
    "found": ("found",),
}
_MEANT = r"let'?s (?:use|go|keep|take|do)|go(?:ing)? with|we'?ll (?:use|keep|go|take)|stick with"
"""How a decision sounds that does not call itself one."""

_CLAIM = re.compile(
    r"\b(?:" + "|".join(f"(?P<{name}>{told})" for name, told in _POOLS.items()) + r")\b",
    re.IGNORECASE,
)
_DECIDING = re.compile(rf"\b(?:{_MEANT})", re.IGNORECASE)

_OPEN = (
    r"not|n't|n’t|never|no|none|nothing|without|cannot|can't|unable|fail(?:s|ed|ing)?|yet to|be"
    r"|will|'ll|’ll|would|should|could|can|may|might|must|shall|if|once|when|until|till|unless"
    r"|before"
    r"|whether|wants?|wanted|needs?|needed|asks?|asked|asking|requests?|requested|propos\w+"
    r"|suggest\w*|recommend\w*|offer\w*|plan(?:s|ned|ning)?|intend\w*|going to|try|tries|trying"
    r"|tried|attempt\w*|expect\w*|hop(?:e|es|ed|ing)|please|let's|almost|nearly|partly|partially|half"
    r"|todo"
    r"|remains?|pending|instead of|rather than|hardly|supposed|should have|assum\w+|far from|than"
    r"|claims? (?:to|that)|un|make sure|ensure|to get|to have|see"
    # Other languages carry English verbs along: "noch nicht deployed".
    r"|nicht|kein\w*|bitte|soll\w*|wird|werden|muss|ohne|falls|wenn|pas|sans|sin"
)
_OPENING = re.compile(rf"(?:\b(?:{_OPEN})\b|n't\b|n’t\b)", re.IGNORECASE)
_BREAK = re.compile(r"[.;:!?\n,()|/—–]|\b(?:and|but|then|so|however|while)\b", re.IGNORECASE)
_NEAR = re.compile(
    rf"(?:\b(?:{_OPEN})|n't|n’t)(?:\s+(?!and\b|but\b|then\b)[\w'’`./-]+){{0,4}}\s+$", re.IGNORECASE
)
_LEFT = 60

FAILURE = re.compile(
    r"\b(?:fail\w*|error\w*|interrupt\w*|abort\w*|stopp\w*|cancel\w*|incomplete|unfinished|broke\w*"
    r"|timed out|time-?out|crash\w*|den(?:y|ied)|reject\w*|refus\w*|not|no|never|unable|cannot"
    r"|can't|could(?:n't| not)|did(?:n't| not)|without|before any|exception|panic|killed|missing"
    r"|blocked|still open|exit(?:ed)? (?:code|status|with)|unresolved|fehlgeschlagen"
    r"|abgebrochen|échou\w*)\b",
    re.IGNORECASE,
)


_FAILING = re.compile(
    r"\b[1-9]\d* (?:tests? )?(?:failed|failures?|failing|errors?)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Facts:
    """A source as the checks see it; each part is made once, when it is first asked for."""

    text: str

    @cached_property
    def low(self) -> str:
        return " ".join(self.text.lower().split())

    @cached_property
    def words(self) -> set[str]:
        return words(self.text)

    @cached_property
    def numbers(self) -> set[str]:
        found = set(re.findall(r"\d+", self.text))
        found.update(n.replace(",", "") for n in re.findall(r"\d[\d,]*\d", self.text))
        return found

    @cached_property
    def tokens(self) -> str:
        """The words one blank apart, to find a quotation in, whatever its punctuation."""
        return " " + " ".join(re.findall(r"\w+", self.text.lower())) + " "

    @cached_property
    def founded(self) -> set[str]:
        """The kinds of claim that the source makes as a fact somewhere."""
        found: set[str] = set()
        for match in _CLAIM.finditer(self.text):
            name = match.lastgroup or ""
            if name not in found and _is_fact(self.text, match):
                found.add(name)
        return found

    @cached_property
    def decides(self) -> bool:
        return _asserts(self.text, _DECIDING)

    def has(self, name: str) -> bool:
        """Whether a name is in the source letter by letter (case aside), to its end.

        The beginning of a name is another name; that of a hash is how people write it.
        """
        low = name.lower()
        if is_number(name):
            plain = name.replace(",", "")
            if plain in self.numbers:
                return True
            return bool(re.search(rf"(?<![\d.]){re.escape(low)}(?![\d])", self.low))
        if _HASH.fullmatch(low) and low in self.low:
            return True
        at = self.low.find(low)
        while at >= 0:
            end = at + len(low)
            if not (low[-1].isalnum() or low[-1] == "_") or not _GOES_ON.match(self.low, end):
                return True
            at = self.low.find(low, at + 1)
        if "/" in name and "." not in name and name.count("/") == 1 and not name.startswith("/"):
            return all(part in self.low for part in low.split("/"))  # "read/write" is no path
        return False

    def quotes(self, words_: str) -> bool:
        return " " + " ".join(re.findall(r"\w+", words_.lower())) + " " in self.tokens


def _asserts(text: str, claim: re.Pattern[str]) -> bool:
    """Whether ``text`` says it as a fact: no denial, wish, plan, condition or question."""
    return any(_is_fact(text, match) for match in claim.finditer(text))


def _is_fact(text: str, match: re.Match[str]) -> bool:
    before = text[max(0, match.start() - _LEFT) : match.start()]
    clause = _BREAK.split(before)[-1]
    if _OPENING.search(clause):
        return False
    # "once the tests pass, it is deployed": a condition in front governs what follows it.
    sentence = re.split(r"[.;!?\n]", before)[-1]
    if re.search(r"\b(?:if|once|when|until|unless|as soon as)\b", sentence, re.IGNORECASE):
        return False
    after = text[match.end() : match.end() + 160]
    ending = re.search(r"[.?!\n]", after)
    asked = ending is not None and ending[0] == "?"
    return not asked and not re.match(r"\s+(?:if|once|when|after|by)\b", after, re.IGNORECASE)


def claims(line: str) -> dict[str, str]:
    """What a line claims as a fact, with the word that does; the near words alone can open it."""
    found: dict[str, str] = {}
    for match in _CLAIM.finditer(line):
        before = line[max(0, match.start() - _LEFT) : match.start()]
        # What stands in another sentence or clause does not open this claim.
        before = re.split(r"[.;:!?,](?=\s)", before)[-1]
        if not _NEAR.search(before):
            found.setdefault(match.lastgroup or "", match[0])
    return found


def unfounded_claims(
    line: str, source: Facts, *, edits: bool, unfinished: bool = False
) -> list[str]:
    """The claiming words of a line that its source does not bear out as facts.

    ``edits``: a tool that changes files ran among the sources, which bears out that something was
    changed. ``unfinished``: it ended otherwise than well, so that parts of it that were done do not
    bear out that it was.
    """
    found: list[str] = []
    failing = bool(_FAILING.search(source.text)) and not FAILURE.search(line)
    for name, word in claims(line).items():
        grounds = _GROUNDS.get(name, (name,))
        if unfinished and name == "done":
            grounds = ("done",)
        borne = any(g in source.founded for g in grounds)
        if name in ("changed", "committed") and edits:
            borne = True
        if name == "decided" and source.decides:
            borne = True
        if failing and name in ("working", "verified", "done", "fixed"):
            borne = False  # "3 failed, 41 passed" does not bear out "passed"
        if not borne:
            found.append(word)
    return found
