"""From a query's words to where they stand among what is visible (§8, I4).

A word is looked for as it is written and in the other ways of writing it; a word that stands
nowhere as a part of longer words, or else as it may have been meant to be spelt.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from optchat.engine.recall import spelling
from optchat.engine.recall.places import Form, Standing, in_sequence, joined
from optchat.engine.recall.query import Query
from optchat.engine.recall.stopwords import STOP_WORDS
from optchat.engine.recall.titles import Titles
from optchat.storage.ports import Frame, Places, Tx
from optchat.storage.words import CJK, parts, spaced, stems

PART_CHARS_MIN = 3
"""A shorter piece of a word stands in almost every text."""

PART_WEIGHT = 0.4
"""What a part of a name is worth when the name itself stands nowhere."""

_LETTERS = re.compile(r"[^\W\d_]+")
_OWNER = re.compile("['’]s$")
"""What is somebody's is looked for with him."""

_RUN = re.compile(f"[{CJK}]+")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Term:
    """Something that was asked for and where it stands.

    ``instead`` are the words that were taken for it, where it stands nowhere itself; ``weight``
    what it counts for.
    """

    told: str
    forms: tuple[Form, ...]
    standing: Standing
    weight: float = 1.0
    instead: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Asked:
    """A query's terms. ``phrases`` have to be there, ``excluded`` must not, ``words`` may."""

    words: tuple[Term, ...]
    phrases: tuple[Term, ...]
    excluded: tuple[Term, ...]

    @property
    def wanted(self) -> tuple[Term, ...]:
        return (*self.phrases, *self.words)


class Finder:
    """Looks stems up in one frame, each once."""

    def __init__(self, tx: Tx, frame: Frame) -> None:
        self._tx = tx
        self.frame = frame
        self._places: dict[str, Places] = {}
        self._standing: dict[Form, Standing] = {}

    def stand(self, asked: Iterable[str]) -> None:
        """Look these stems up together."""
        new = [stem for stem in dict.fromkeys(asked) if stem not in self._places]
        self._places |= self._tx.search.places(new)

    def of(self, form: Form) -> Standing:
        """Where a form stands."""
        if form not in self._standing:
            self.stand(form)
            places = [self._places[stem] for stem in form]
            self._standing[form] = in_sequence(places, self.frame.rows)
        return self._standing[form]

    def term(self, told: str, forms: Sequence[Form], weight: float = 1.0) -> Term:
        return Term(
            told=told,
            forms=tuple(forms),
            standing=joined(self.of(form) for form in forms),
            weight=weight,
        )

    def parts(self, term: Term) -> tuple[Term, ...]:
        """A term for each stem of a phrase."""
        stems = dict.fromkeys(stem for form in term.forms for stem in form)
        return tuple(self.term(stem, [(stem,)]) for stem in stems)

    def containing(self, piece: str) -> tuple[str, ...]:
        """The visible stems that ``piece`` is a part of."""
        return self._visible(self._tx.search.holding((piece,)))

    def similar(self, word: str) -> tuple[str, ...]:
        """The visible stems that ``word`` may be a misspelling of."""
        near = spelling.near(word)
        found = self._visible(self._tx.search.known(stems(" ".join(near))))
        if found or len(word) < spelling.FAR_CHARS_MIN:
            return found
        [stem] = stems(word)
        candidates = self._tx.search.holding(spelling.pieces(stem))
        return self._visible([c for c in candidates if spelling.is_far(stem, c)])

    def _visible(self, found: Iterable[str]) -> tuple[str, ...]:
        there = tuple(dict.fromkeys(found))
        self.stand(there)
        return tuple(stem for stem in there if len(self.of((stem,))))


def resolve(finder: Finder, query: Query) -> Asked:
    """Where everything that was asked for stands."""
    words = _meaning(query.words) if query.words else ()
    forms = {word: _forms(word) for word in words}
    finder.stand(stem for found in forms.values() for form in found for stem in form)
    terms: dict[tuple[Form, ...], Term] = {}
    for word, found in forms.items():
        for term in _of_word(finder, word, found):
            terms.setdefault(term.forms, term)
    titles = Titles.of(finder.frame)
    present = [t for t in terms.values() if len(t.standing) or titles.holding(t.forms).any()]
    missing = [t for t in terms.values() if t not in present]
    phrases = tuple(_phrase(finder, phrase) for phrase in query.phrases)
    mended = [_mended(finder, term, [*present, *phrases]) for term in missing]
    return Asked(
        words=(*present, *mended),
        phrases=phrases,
        excluded=tuple(_phrase(finder, told) for told in query.excluded),
    )


def _meaning(words: Sequence[str]) -> tuple[str, ...]:
    """The words without those that say nothing, unless that is all there are."""
    kept = tuple(word for word in words if _bare(word) not in STOP_WORDS)
    return kept or tuple(words)


def _bare(word: str) -> str:
    return " ".join(_LETTERS.findall(word.lower())) if word.isascii() else word.lower()


def _phrase(finder: Finder, told: str) -> Term:
    return finder.term(told, [form] if (form := stems(spaced(told))) else [])


def _forms(word: str) -> tuple[Form, ...]:
    """The ways in which a name is written: as it is, its parts apart, and all in one."""
    whole = stems(spaced(word))
    if not whole:
        return ()
    forms = {whole: None}
    if owner := stems(spaced(_OWNER.sub("", word))):
        forms[owner] = None
    if word.isascii():
        apart = re.sub(r"[A-Za-z0-9]+", lambda m: " ".join(parts(m[0]) or (m[0],)), word)
        forms[stems(apart)] = None
        if re.fullmatch(r"[A-Za-z0-9]+(?:[_-][A-Za-z0-9]+)+", word):
            forms[stems(re.sub(r"[_-]", "", word))] = None
    return tuple(forms)


def _of_word(finder: Finder, word: str, forms: tuple[Form, ...]) -> list[Term]:
    """The term of a word; where a name of several parts stands nowhere, a term for each part."""
    if not forms:
        return []
    whole = finder.term(word, forms)
    longest = max(forms, key=len)
    if len(whole.standing) or len(longest) == 1:
        return [whole]
    run = _RUN.search(word)
    if run is not None and len(run[0]) > 2:
        pairs = [run[0][at : at + 2] for at in range(len(run[0]) - 1)]
        rest = _RUN.sub(" ", word).split()
        return [
            *(finder.term(pair, [stems(spaced(pair))], PART_WEIGHT) for pair in pairs),
            *(finder.term(piece, [form]) for piece in rest if (form := stems(piece))),
        ]
    kept = [stem for stem in longest if len(stem) >= PART_CHARS_MIN and stem not in STOP_WORDS]
    return [finder.term(stem, [(stem,)], PART_WEIGHT) for stem in dict.fromkeys(kept)] or [whole]


def _mended(finder: Finder, term: Term, others: Sequence[Term]) -> Term:
    """The term with what was probably meant, if something visible is near it."""
    stem = term.forms[0][0] if term.forms and len(term.forms[0]) == 1 else ""
    if len(stem) < PART_CHARS_MIN:
        return term
    instead = finder.containing(stem)
    if not instead and spelling.is_spelt(term.told):
        instead = _likeliest(finder, finder.similar(term.told.lower()), others)
    if not instead:
        return term
    return Term(
        told=term.told,
        forms=tuple((found,) for found in instead),
        standing=joined(finder.of((found,)) for found in instead),
        weight=term.weight,
        instead=instead,
    )


def _likeliest(finder: Finder, found: Sequence[str], others: Sequence[Term]) -> tuple[str, ...]:
    """Of several corrections, the one that most often stands with the query's other words.

    Where none ever does, the most frequent ones.
    """
    if len(found) < 2:
        return tuple(found)
    frame = finder.frame
    beside = np.zeros(frame.count, bool)
    for term in others:
        beside[term.standing.rows] = True
    sessions = np.zeros(len(frame.sessions), bool)
    sessions[frame.session[beside]] = True

    def together(stem: str) -> tuple[float, float, int, str]:
        rows, _ = finder.of((stem,)).counted()
        near = beside[rows].mean()
        around = sessions[frame.session[rows]].mean()
        return (-float(near), -float(around), -len(rows), stem)

    ordered = sorted(found, key=together)
    return tuple(ordered[:1]) if together(ordered[0])[0] < 0 else tuple(ordered[:3])
