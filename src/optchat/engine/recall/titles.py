"""The visible sessions by the words of their titles, and of the names of their projects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from optchat.engine.recall.places import Flags, Form
from optchat.refs import ProjectId
from optchat.storage.ports import Frame
from optchat.storage.words import indexed, stems


class Titles:
    """An index of a frame's titles, kept with it. Sessions are places in the frame's tuple."""

    def __init__(self, frame: Frame, directories: Mapping[ProjectId, str]) -> None:
        self._count = len(frame.sessions)
        self._titles = _Index()
        for at, session_id in enumerate(frame.sessions):
            titled = frame.titles.get(session_id)
            if titled is not None and titled.title:
                self._titles.add(at, titled.title)
        self._projects = _Index()
        project_of = np.zeros(self._count, np.int32)
        project_of[frame.session] = frame.project
        self._project_of = project_of
        for at, project_id in enumerate(frame.projects):
            self._projects.add(at, directories.get(project_id, "").rstrip("/").rpartition("/")[2])

    @classmethod
    def of(cls, frame: Frame, directories: Mapping[ProjectId, str] | None = None) -> Titles:
        found = frame.derived.get("titles")
        if not isinstance(found, Titles):
            found = frame.derived["titles"] = cls(frame, directories or {})
        return found

    def holding(self, forms: Sequence[Form]) -> Flags:
        """The sessions whose title holds one of the forms."""
        found = np.zeros(self._count, bool)
        found[[*self._titles.holding(forms)]] = True
        return found

    def placed(self, forms: Sequence[Form]) -> Flags:
        """The sessions whose project's name holds one of the forms."""
        found = np.zeros(self._projects.count, bool)
        found[[*self._projects.holding(forms)]] = True
        return found[self._project_of]

    def places(self, session: int, forms: Sequence[Form]) -> list[int]:
        """The numbers of the words in a title at which one of the forms stands."""
        return self._titles.places(session, forms)


class _Index:
    """Short texts by their stems."""

    def __init__(self) -> None:
        self._by_stem: dict[str, list[int]] = {}
        self._told: dict[int, tuple[str, ...]] = {}

    @property
    def count(self) -> int:
        return len(self._told)

    def add(self, at: int, text: str) -> None:
        self._told[at] = _stems(text)
        for stem in dict.fromkeys(self._told[at]):
            self._by_stem.setdefault(stem, []).append(at)

    def holding(self, forms: Sequence[Form]) -> set[int]:
        found: set[int] = set()
        for form in forms:
            first = self._by_stem.get(form[0], ()) if form else ()
            found.update(at for at in first if len(form) == 1 or self.places(at, [form]))
        return found

    def places(self, at: int, forms: Sequence[Form]) -> list[int]:
        told = self._told.get(at, ())
        return [
            i for i in range(len(told)) if any(told[i : i + len(form)] == form for form in forms)
        ]


@lru_cache(maxsize=16_384)
def _stems(title: str) -> tuple[str, ...]:
    return stems(indexed(title))
