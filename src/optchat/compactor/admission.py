"""Whether a line may stand in a tree: checks that need no model, each with its own name (§10).

A hard finding keeps a line out. A soft one is worth asking again for, and the best line that was
seen is taken in the end. Every finding is counted by model and prompt version.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field
from functools import cached_property

from optchat.compactor.facts import FAILURE, Facts, claims, is_number, names, unfounded_claims
from optchat.compactor.facts import words as words_of
from optchat.compactor.prompts import prompts
from optchat.core.context import escaped_bytes
from optchat.limits import SUMMARY_BYTES_MAX

ECHO_CHARS_MIN = 120
ECHO_PART = 0.8
FOUNDED_PART_MIN = 0.3
SWAP_MARGIN = 0.34
WORDS_MIN = 3
"""A source that had to be summarised is not told in fewer words, unless one is a name of its."""

NAMES_SHOWN = 4
NAME_CHARS_MAX = 80
"""A longer one is none that a reader would look for, and is shown with a mark where it is cut."""

SALIENT_CHARS = 4_000

NOT_DONE = ("failed", "interrupted", "error")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with a line; ``values`` fill the words of retry.md."""

    name: str
    values: dict[str, str] = field(default_factory=dict[str, str])
    soft: bool = False


@dataclass(frozen=True, kw_only=True)
class Subject:
    """What a line is checked against.

    ``speaker`` is whose words a leaf holds: "person", "agent" or "tool". ``outcome`` is how it
    ended. ``members_bytes`` is what a merge must stay below. ``others`` are the sources of the
    unrelated lines of the same answer. ``context`` may supply a name that the source refers to.
    """

    kind: str
    source: Facts
    context: Facts = Facts("")  # noqa: RUF009
    speaker: str = ""
    outcome: str = ""
    partly_failed: bool = False
    members_bytes: int | None = None
    edits: bool = False
    others: tuple[Facts, ...] = ()

    @property
    def is_leaf(self) -> bool:
        """Whether the line is of an original, not of other lines."""
        return not self.kind.startswith(("range", "turn")) and not self.kind.endswith("in parts")

    @cached_property
    def salient(self) -> list[str]:
        """The names by which a reader would look for this source."""
        found = names(self.source.text[:SALIENT_CHARS])
        return [
            n for n in found if not is_number(n) and len(n) <= NAME_CHARS_MAX and "\n" not in n
        ][:8]


_DRAFTING_HEAD = re.compile(
    r"(?:here(?:'s|’s| is| are)\b|sure\b|okay\b|ok[,.: ]|certainly|of course|let me\b|draft\b"
    r"|revised\b|final (?:version|line|answer)|summary(?: line)?\s*[:\-—]"
    r"|(?:one-line )?summary of\b|line\s*:|answer\s*:|output\s*:|rewritten\b|shortened\b"
    r"|attempt \d|i(?:'ll|’ll| will| need to| should| have to| am going to| think| must| can)\b"
    r"|we (?:need|have) to\b|as an ai\b|i(?:'m|’m| am) sorry|i apologi[sz]e|i can(?:'t|’t|not)\b)",
    re.IGNORECASE,
)
_DRAFTING = re.compile(
    r"\b(?:512[- ]?bytes?|\d+ bytes? (?:of|/) ?512|under 512|byte (?:limit|count|budget)|word count"
    r"|character (?:limit|count)|within (?:the|its) (?:byte |size |length )?(?:limit|bound)"
    r"|(?:the|this) line (?:says|states|summari[sz]es|is (?:short|within))"
    r"|summary of (?:a|the) summary|let me know if|(?:first|second|final) draft)\b",
    re.IGNORECASE,
)
_REASONING = re.compile(
    r"</?(?:think|thinking|reasoning|scratchpad|analysis)\b|<\|[a-z_]+\|>|\[/?INST\]"
    r"|^(?:hmm+|wait\b|thinking:|reasoning:|analysis:|let'?s (?:see|think)|okay, so|alright"
    r"|the (?:user|task|prompt|instruction)s? (?:wants?|asks?|says?|is|are|requires?) (?:me|us"
    r"|to write|to produce)|we(?:'re| are) (?:asked|given)|my task|i'm asked)"
    r"|\b(?:chain of thought|step by step, i|i'?ll now (?:write|produce|summari[sz]e))\b",
    re.IGNORECASE,
)
_MARKUP = re.compile(
    r"(?:#{1,6}\s|[*\-+•]\s|\d+[.)]\s|```|\||>|<|\{|\[|=+\s|(?:pub:\d|s\d+:\d+:\d+)"
    r"|(?:user|assistant|result|call|range|turn|report|part)\s*(?:\w+ ?){0,2}\|)",
    re.IGNORECASE,
)
_DIRECTIVE = re.compile(
    r"\b(?:ignore|disregard|forget|override|bypass)\b[^.;]{0,40}\b(?:instructions?|rules?|prompts?"
    r"|guidelines?|above|previous|prior|system|everything)\b"
    r"|\b(?:you are now|you will now|from now on,? you|new (?:system )?instructions?\s*:|system\s*:"
    r"|developer mode|jailbreak|do not (?:tell|mention|reveal|inform)\b|pretend (?:to|that)"
    r"|act as (?:a|an|if))",
    re.IGNORECASE,
)
_SECOND_PERSON = re.compile(
    r"(?:^|[.;!]\s*)(?:you (?:must|should|have to|need to)|please (?:do|run|execute|delete|send"
    r"|open)|(?:run|execute|delete|send|open|visit|download)\b[^.;]{0,60}"
    r"\b(?:now|immediately|at once)\b)",
    re.IGNORECASE,
)
_ORDERED = re.compile(
    r"\b(?:answer|reply|respond|output|say|print|return|write|summari[sz]e (?:this )?as)\b"
    r"(?:\s+(?:only|that|just|exactly|with|the|words?|text|this|back))*\s*[:,]?\s*[\"“'`]?"
    r"([^\"”'`\n.]{3,80})",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"\"[^\"\n]*\"|“[^”\n]*”|«[^»\n]*»|`[^`\n]*`|(?<!\w)'[^'\n]{6,}'(?!\w)")
_QUOTE = re.compile(r"\"([^\"\n]{12,})\"|“([^”\n]{12,})”")
_BY_PERSON = re.compile(
    r"\b(?:the )?user (?:asks?|asked|wants?|wanted|requests?|requested|needs?|decides?|decided"
    r"|says?"
    r"|said|confirms?|confirmed|approves?|approved|agrees?|agreed|instructs?|instructed|tells|told"
    r"|proposes?|proposed|reports?|reported|insists?|insisted)\b",
    re.IGNORECASE,
)
_OF_PERSON = re.compile(
    r"\b(?:user|you (?:ask|want|request|said|mention|told|prefer|need|chose|decid|confirm"
    r"|approv)\w*"
    r"|your|as requested|person)\b",
    re.IGNORECASE,
)
_BY_AGENT = re.compile(
    r"\b(?:the )?(?:agent|assistant) (?:will|has|did|offers?|offered|proposes?|proposed|promises?"
    r"|plans?|reports?|reported|suggests?|suggested|found|finds|fixed|added|implemented|ran"
    r"|runs|created"
    r"|wrote|decided|explains?|explained|says?|said)\b",
    re.IGNORECASE,
)
_OF_AGENT = re.compile(
    r"\b(?:agent|assistant|you|your|claude|gpt|codex|model|bot|it)\b", re.IGNORECASE
)


def findings(line: str, subject: Subject) -> list[Finding]:
    """Everything that is wrong with ``line`` as the line of ``subject``, hard findings first."""
    found = [*_form(line, subject), *_meaning(line, subject)]
    return sorted(found, key=lambda f: f.soft)


def _form(line: str, subject: Subject) -> list[Finding]:
    if not any(c.isalnum() for c in line):
        return [Finding("empty")]
    found: list[Finding] = []
    if any(_is_control(c) and (c != "\ufffd" or c not in subject.source.text) for c in line):
        found.append(Finding("control"))
    size = escaped_bytes(line)
    if size > SUMMARY_BYTES_MAX:
        cut = _cut_mark(line)
        values = {"bytes": str(size), "words": str(len(line.split())), "cut": cut}
        found.append(Finding("too_long", values))
    elif subject.members_bytes is not None and size >= subject.members_bytes:
        values = {"bytes": str(size), "limit": str(subject.members_bytes)}
        found.append(Finding("no_smaller", values))
    bare = _QUOTED.sub(" ", line)
    drafting = _DRAFTING.search(bare)
    low = line.lower()
    own_words = subject.speaker == "person" and subject.source.quotes(line[:24].rsplit(" ", 1)[0])
    if (_DRAFTING_HEAD.match(line) and not own_words) or (
        drafting and drafting[0].lower() not in subject.source.low
    ):
        found.append(Finding("drafting"))
    elif any(w in low and w not in subject.source.low for w in prompts().own_words):
        # What was said about an earlier line names names of the source, and would pass for one.
        found.append(Finding("drafting"))
    if _REASONING.search(bare):
        found.append(Finding("reasoning"))
    if _MARKUP.match(line):
        found.append(Finding("markup"))
    if (
        _DIRECTIVE.search(bare)
        or _obeys(line, subject.source)
        or (subject.speaker != "person" and _SECOND_PERSON.search(bare))
    ):
        found.append(Finding("directive"))
    return found


def _meaning(line: str, subject: Subject) -> list[Finding]:
    found: list[Finding] = []
    source = subject.source
    if subject.is_leaf and subject.speaker != "person" and _is_echo(line, source):
        found.append(Finding("echo"))
    said = words_of(line)
    own = _covered(said, source.words)
    told = names(line)
    known = [n for n in told if source.has(n)]
    both = _covered(said, source.words | subject.context.words | words_of(subject.kind))
    meagre = len(line.split()) < WORDS_MIN and len(source.text) > SUMMARY_BYTES_MAX
    if (meagre and not known) or (said and not known and max(own, both) < FOUNDED_PART_MIN):
        found.append(Finding("unfounded"))
    other = max((_covered(said, o.words) for o in subject.others), default=0.0)
    strange = [n for n in told if n not in known and not subject.context.has(n)]
    foreign = [n for n in strange if any(o.has(n) for o in subject.others)]
    if foreign or (len(said) > 2 and own < 0.5 and other > own + SWAP_MARGIN):
        found.append(Finding("swapped"))
    strange += [
        quote
        for match in _QUOTE.finditer(line)
        for quote in _pieces(match[1] or match[2])
        if not source.quotes(quote) and not subject.context.quotes(quote)
    ]
    if strange:
        found.append(Finding("invented", {"names": _shown(strange)}))
    found += _progress(line, subject)
    lost = [n for n in subject.salient if n.lower() not in line.lower()]
    if subject.salient and len(lost) == len(subject.salient):
        found.append(Finding("drops_names", {"names": _shown(lost)}, soft=True))
    return found


def _progress(line: str, subject: Subject) -> list[Finding]:
    """Never further along than it was."""
    found: list[Finding] = []
    unfinished = subject.outcome in NOT_DONE
    too_much = unfounded_claims(line, subject.source, edits=subject.edits, unfinished=unfinished)
    if too_much:
        found.append(Finding("overclaim", {"names": _shown(too_much)}))
    told = bool(FAILURE.search(line))
    claiming = bool(claims(line))
    if unfinished and not told:
        found.append(Finding("hides_failure", {"outcome": subject.outcome}, soft=not claiming))
    elif subject.partly_failed and not told and claiming:
        found.append(Finding("hides_failure", {"outcome": "failed in part"}, soft=True))
    bare = _QUOTED.sub(" ", line)
    if subject.speaker in ("agent", "tool"):
        if _BY_PERSON.search(bare) and not _OF_PERSON.search(subject.source.text):
            found.append(Finding("speaker", {"speaker": subject.speaker}))
    elif (
        subject.speaker == "person"
        and _BY_AGENT.search(bare)
        and not _OF_AGENT.search(subject.source.text)
    ):
        found.append(Finding("speaker", {"speaker": "person"}))
    return found


def _obeys(line: str, source: Facts) -> bool:
    """Whether the line is just what the source orders its reader to say."""
    said = line.strip(" .!\"'").lower()
    for match in _ORDERED.finditer(source.text):
        ordered = " ".join(match[1].lower().split()).strip(" .!")
        if said == ordered or (ordered.startswith(said) and len(said) > 2):
            return True
        if len(ordered) > 3 and said.startswith(ordered) and len(said) < len(ordered) + 12:
            return True
    return False


def _is_control(character: str) -> bool:
    if character.isascii():
        return character < " " or character == "\x7f"
    return (
        character == "\ufffd"
        or unicodedata.category(character) in ("Cc", "Cs", "Co", "Zl", "Zp")
        or ("\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069")
    )


def _cut_mark(line: str) -> str:
    """The last words that fit, a bar, and the first that do not."""
    low, high = 0, len(line)
    while low < high:
        middle = (low + high + 1) // 2
        if escaped_bytes(line[:middle]) <= SUMMARY_BYTES_MAX:
            low = middle
        else:
            high = middle - 1
    return f"…{line[max(0, low - 40) : low]}|{line[low : low + 20]}…"


def _is_echo(line: str, source: Facts) -> bool:
    flat = " ".join(line.lower().split()).rstrip("…. ")
    length = max(ECHO_CHARS_MIN, int(len(flat) * ECHO_PART))
    if len(flat) < ECHO_CHARS_MIN or len(source.low) < 2 * ECHO_CHARS_MIN:
        return False
    return any(
        flat[start : start + length] in source.low for start in range(0, len(flat) - length + 1, 4)
    )


def _covered(said: set[str], words: set[str]) -> float:
    return len(said & words) / len(said) if said else 0.0


def _pieces(quote: str) -> list[str]:
    """The parts of a quotation between its gaps that are long enough to be looked for."""
    return [p for p in re.split(r"…|\.\.\.|\[[^\]]*\]", quote) if len(p.split()) >= 3]


def _shown(values: list[str]) -> str:
    cut = (v if len(v) <= NAME_CHARS_MAX else f"{v[:NAME_CHARS_MAX]}…" for v in values)
    return ", ".join(list(dict.fromkeys(cut))[:NAMES_SHOWN])
