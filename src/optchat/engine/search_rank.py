"""From a query to ranked evidence: which words to ask the store for, and what they weigh (§8).

The vocabulary that expansions come from is that of the whole store; a form without a visible record
gives nothing, so that what is not visible moves no hit, count or rank (I4).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from optchat.core.questions import (
    STOP_WORDS,
    Concept,
    camel_pieces,
    edits,
    is_wide,
    stem_range,
    tokens,
)
from optchat.core.ranking import Evidence, rank
from optchat.core.records import RecordKind, Session
from optchat.core.stems import stem
from optchat.core.tree import SessionTree
from optchat.engine.visible import Reader
from optchat.refs import SessionId
from optchat.storage.ports import Occurrence, SearchQuery
from optchat.storage.words import searchable, words

FORMS_MAX = 64
"""The forms of one concept that are asked for."""

LOOKED_AT_MAX = 5_000
"""The words of the vocabulary that are looked at for them."""

_CLASS_FACTOR = {
    "typed": 1.05,
    "tool-input": 1.0,
    "skill": 0.3,
    "injected": 0.5,
}


@dataclass(slots=True)
class Asked:
    """A concept with its forms: indexed words and phrases, each with its weight."""

    concept: Concept
    words: dict[str, float] = field(default_factory=dict[str, float])
    phrases: dict[str, float] = field(default_factory=dict[str, float])


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranked:
    """A visible record, or a session found by its title (``seq`` -1), with its score."""

    tree: SessionTree
    seq: int
    session: Session
    score: float
    matched: tuple[str, ...]
    evidence: str


def evidence_class(kind: RecordKind, tool: str | None, status: str | None) -> str:
    """What kind of text a record is and who wrote it; never a person where it is not known."""
    match kind:
        case RecordKind.USER:
            return "injected" if status == "synthetic" else "typed"
        case RecordKind.ASSISTANT:
            return "model"
        case RecordKind.TOOL_CALL:
            return "tool-input"
        case RecordKind.REPORT:
            return "delegated"
        case RecordKind.TOOL_RESULT:
            return {
                "skill": "skill",
                "read": "file-read",
                "webfetch": "web-fetch",
                "websearch": "web-fetch",
                "fetch": "web-fetch",
            }.get(tool or "", "tool-output")
        case _:
            return "unknown"


def concepts(query: str) -> list[Concept]:
    """The concepts of a query, stop words left out unless there is nothing else."""
    found: dict[tuple[str, ...], Concept] = {}
    for value, quoted, excluded in tokens(query):
        pieces = words(searchable(value))
        if excluded or not pieces or pieces in found:
            continue
        phrase = quoted and len(pieces) > 1
        found[pieces] = Concept(
            name=value.lower(),
            words=pieces,
            phrase=phrase,
            boost=2.0 if phrase else 1.0,
            split=camel_pieces(value) if not quoted else (),
        )
    telling = [c for c in found.values() if c.phrase or not STOP_WORDS.issuperset(c.words)]
    return telling or list(found.values())


def ask(reader: Reader, concept: Concept) -> Asked:
    """The exact forms of a concept, its stems, and its other spellings as an identifier."""
    asked = Asked(concept)
    search = reader.tx.search
    if len(concept.words) > 1:
        asked.phrases[" ".join(concept.words)] = 1.0
        if not concept.phrase and len(concept.words) <= 6:
            asked.words[concept.joined] = 1.0
        return asked
    word = concept.joined
    asked.words[word] = 1.0
    if len(concept.split) > 1:
        asked.phrases[" ".join(concept.split)] = 1.0
    if is_wide(word):
        wide = search.containing(word, "\u0e00", "\U0010ffff", LOOKED_AT_MAX)
        asked.words.update((w, 0.9) for w in wide if w != word)
    elif word.isascii() and word.isalpha() and len(word) > 2:
        wanted = stem(word)
        start, end = stem_range(word)
        for other in search.vocabulary(start, end, LOOKED_AT_MAX):
            if other != word and stem(other) == wanted and len(asked.words) < FORMS_MAX:
                asked.words[other] = 0.95
    return asked


def rank_records(
    reader: Reader, query: str, parsed: SearchQuery, *, left_out: frozenset[SessionId]
) -> tuple[list[Ranked], int]:
    """What a query finds, best first, and how many visible records were looked at."""
    searched = reader.tx.search.searchable(reader.visibility)
    asked = [ask(reader, concept) for concept in concepts(query)]
    names = [a.concept for a in asked]
    joined = _joins(asked)
    occurrences = _fetch(reader, parsed, [*asked, *joined], left_out)
    missing = [a for a in asked if not any(_count(o, a) for o in occurrences)]
    for one in missing:
        if _is_joined(one, joined, occurrences):
            continue
        if _expand(reader, parsed, one, occurrences, [a for a in asked if a is not one], left_out):
            occurrences = _fetch(reader, parsed, [*asked, *joined], left_out)
    sessions: dict[SessionId, Session] = {}
    for occurrence in occurrences:
        of = occurrence.tree.session_id
        if of not in sessions:
            session = reader.tx.sessions.session(of)
            assert session is not None
            sessions[of] = session
    everyone = [*asked, *joined]
    evidence = [_evidence(o, everyone) for o in occurrences]
    titles = _titles(reader, parsed, asked, left_out)
    for session, counts in titles:
        sessions[session.session_id] = session
        evidence.append(
            Evidence(
                session=session.session_id,
                tree=str(SessionTree(session.session_id, session.generation)),
                turn="title",
                seq=-100,
                size=40,
                counts=counts,
                places={},
            )
        )
    visible = reader.tx.publications.visible_sessions(reader.visibility)
    scores = rank(
        evidence,
        boost=[a.concept.boost for a in everyone],
        records=searched + len(visible),
        turns=max(sum(row[1] for row in visible), 1),
        sessions=max(len(visible), 1),
    )
    ranked = [
        Ranked(
            tree=o.tree,
            seq=o.seq,
            session=sessions[o.tree.session_id],
            score=score,
            matched=_matched(o, everyone),
            evidence=evidence_class(o.kind, o.tool, o.status),
        )
        for o, score in zip(occurrences, scores, strict=False)
    ]
    best = {r.session.session_id for r in ranked}
    for (session, counts), score in zip(titles, scores[len(occurrences) :], strict=True):
        if session.session_id not in best:
            ranked.append(
                Ranked(
                    tree=SessionTree(session.session_id, session.generation),
                    seq=-1,
                    session=session,
                    score=score,
                    matched=tuple(names[c].name for c in sorted(counts)),
                    evidence="title",
                )
            )
    ranked.sort(key=lambda r: (-round(r.score, 9), str(r.tree), -r.seq))
    return ranked, searched


def _joins(asked: list[Asked]) -> list[Asked]:
    """Neighbouring plain words written as one identifier: "load balancer" as loadbalancer."""
    plain = [a.concept for a in asked if len(a.concept.words) == 1 and not a.concept.split]
    found: list[Asked] = []
    for length in (2, 3):
        for at in range(len(plain) - length + 1):
            pieces = tuple(c.words[0] for c in plain[at : at + length])
            one = Asked(Concept(name=" ".join(pieces), words=pieces, boost=0.5 * length))
            one.words["".join(pieces)] = 1.0
            found.append(one)
    return found[:16]


def _is_joined(one: Asked, joined: list[Asked], found: list[Occurrence]) -> bool:
    """Whether a word was found as a piece of a longer one."""
    of = [j for j in joined if one.concept.words[0] in j.concept.words]
    return any(_count(o, j) for j in of for o in found)


def _fetch(
    reader: Reader, parsed: SearchQuery, asked: Iterable[Asked], left_out: frozenset[SessionId]
) -> list[Occurrence]:
    every = list(asked)
    found = reader.tx.search.occurrences(
        reader.visibility,
        parsed,
        [word for a in every for word in a.words],
        [phrase for a in every for phrase in a.phrases],
    )
    kept = [o for o in found if o.tree.session_id not in left_out]
    return sorted(kept, key=lambda o: (str(o.tree), o.seq))


def _expand(
    reader: Reader,
    parsed: SearchQuery,
    one: Asked,
    found: list[Occurrence],
    others: list[Asked],
    left_out: frozenset[SessionId],
) -> bool:
    """Forms for a concept that no visible record holds: its pieces, substrings, likely typos."""
    search = reader.tx.search
    if len(one.concept.words) > 1 and not one.concept.phrase:
        for word in one.concept.words:
            if word not in STOP_WORDS:
                one.words[word] = 0.4
        return True
    word = one.concept.joined
    if one.concept.phrase or len(word) < 3:
        return False
    inside = search.containing(word, "", "\U0010ffff", LOOKED_AT_MAX)
    near = sorted(search.known(edits(word))) if 4 <= len(word) <= 24 else []
    probe = Asked(one.concept, words=dict.fromkeys((*inside, *near), 1.0))
    if not probe.words:
        return False
    company = {o.tree.session_id for o in found if any(_count(o, a) for a in others)}
    together: dict[str, tuple[int, int]] = {}
    records = {(o.tree, o.seq) for o in found if any(_count(o, a) for a in others)}
    for o in _fetch(reader, parsed, [probe], left_out):
        for form in o.places:
            same, beside = together.get(form, (0, 0))
            together[form] = (
                same + ((o.tree, o.seq) in records),
                beside + (o.tree.session_id in company),
            )
    order = sorted(
        together,
        key=lambda form: (form not in inside, -together[form][0], -together[form][1], form),
    )
    for form in order[: FORMS_MAX if order and order[0] in inside else 3]:
        one.words[form] = 0.7 if form in inside else 0.5
    return bool(order)


def _count(occurrence: Occurrence, asked: Asked) -> float:
    places = occurrence.places
    count = sum(w * len(places[form]) for form, w in asked.words.items() if form in places)
    return count + sum(w for form, w in asked.phrases.items() if form in places)


def _evidence(occurrence: Occurrence, asked: list[Asked]) -> Evidence:
    counts: dict[int, float] = {}
    places: dict[int, list[int]] = {}
    for number, one in enumerate(asked):
        count = _count(occurrence, one)
        if count:
            counts[number] = count
            at = [p for form in one.words for p in occurrence.places.get(form, ()) if p >= 0]
            places[number] = sorted(at)
    kind = evidence_class(occurrence.kind, occurrence.tool, occurrence.status)
    return Evidence(
        session=occurrence.tree.session_id,
        tree=str(occurrence.tree),
        turn=occurrence.turn_id,
        seq=occurrence.seq,
        size=occurrence.size,
        counts=counts,
        places=places,
        factor=_CLASS_FACTOR.get(kind, 1.0),
    )


def _matched(occurrence: Occurrence, asked: list[Asked]) -> tuple[str, ...]:
    forms = {
        form for one in asked for form in (*one.words, *one.phrases) if form in occurrence.places
    }
    return tuple(sorted(forms))


def _titles(
    reader: Reader, parsed: SearchQuery, asked: list[Asked], left_out: frozenset[SessionId]
) -> list[tuple[Session, dict[int, float]]]:
    """Visible sessions whose title holds a concept; not under a time, which is of records."""
    if parsed.since_ms is not None or parsed.until_ms is not None or parsed.excluded:
        return []
    found: list[tuple[Session, dict[int, float]]] = []
    wanted = [(n, form) for n, a in enumerate(asked) for form in a.words]
    for session, _, _, _ in reader.tx.publications.visible_sessions(reader.visibility):
        if session.session_id in left_out or parsed.session_id not in (None, session.session_id):
            continue
        title = session.title.lower()
        if not any(form in title for _, form in wanted):
            continue
        held = set(words(searchable(session.title)))
        counts = {n: 1.0 for n, form in wanted if form in held}
        if counts:
            found.append((session, counts))
    return found


def narrow(
    reader: Reader,
    found: list[Ranked],
    *,
    directory: str | None = None,
    role: str | None = None,
    kind: str | None = None,
    tool: str | None = None,
) -> list[Ranked]:
    """The hits that fit; a skill's text, read again and again, stands once for a session.

    A filter is of the hits: what it leaves out still counted in the statistics of the visible.
    """
    seen: set[SessionId] = set()
    kept: list[Ranked] = []
    for hit in found:
        if not _fits(reader, hit, directory, role, kind, tool):
            continue
        if hit.evidence == "skill":
            if hit.session.session_id in seen:
                continue
            seen.add(hit.session.session_id)
        kept.append(hit)
    return kept


_ROLES = {
    "typed": "user",
    "injected": "user",
    "model": "assistant",
    "delegated": "assistant",
    "title": "title",
    "unknown": "unknown",
}


def _fits(
    reader: Reader,
    hit: Ranked,
    directory: str | None,
    role: str | None,
    kind: str | None,
    tool: str | None,
) -> bool:
    if directory is not None:
        where = hit.session.directory
        if where != directory and not where.startswith(directory.rstrip("/") + "/"):
            return False
    if kind is not None and kind != hit.evidence:
        return False
    if role is not None and _ROLES.get(hit.evidence, "tool") != role:
        return False
    if tool is not None:
        record = reader.tx.records.record(hit.tree, hit.seq) if hit.seq >= 0 else None
        return record is not None and record.tool == tool
    return True
