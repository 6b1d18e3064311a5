"""Folding: rendering a new base and choosing where the native tail begins (§6, §7).

A fold needs no model call, for the summaries are there already. Coverage is a boundary that moves:
each earlier record is in the base's own view or native in the tail, so a slow compactor moves the
boundary back and costs tokens, not memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from optchat.core import context
from optchat.core.budget import divide, text_tokens
from optchat.core.records import Fold, Lineage, Pin, Session
from optchat.core.scopes import Scope
from optchat.core.tree import ScopeTree, SessionTree
from optchat.core.views import Entry, View, advance, clip, coarsest_tokens, project
from optchat.engine.deps import Deps
from optchat.engine.forest import Forest
from optchat.engine.news import news_lines
from optchat.engine.room import Room
from optchat.engine.tail import Tail, TailTurn
from optchat.errors import NotReady
from optchat.refs import Csn, FoldId
from optchat.storage.ports import SharedBase, Tx

TAIL_PART = 0.6
"""The native tail's share of what is left for memory; the views have what it leaves."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """A base that fits: which own and shared entries, and from which turn on the tail is native."""

    first: int
    own: tuple[Entry, ...]
    shared: tuple[Entry, ...] | None  # None: the scope's rendered base is reused
    coverage: str


@dataclass(slots=True)
class Folder:
    """Makes folds for one admission."""

    tx: Tx
    deps: Deps
    session: Session
    scope: Scope
    pin: Pin
    lineage: Lineage
    window_key: str
    factor: float

    def make(self, cause: str, tail: Tail, room: Room, current: Fold | None) -> Fold:
        """Render and store a new fold.

        Raises:
            NotReady: no cover of everything fits, even with the shortest tail; strict mode.
        """
        view = self._own_view()
        reusable = self._reusable_base()
        # Best first: with room for the tail to grow, else the next turn would have to fold again.
        for reserve, grows in ((True, cause != "layout"), (True, False), (False, False)):
            available = room.available(reserve=reserve)
            plan = self._plan(cause, tail, available, view, reusable, current, grows=grows)
            if plan is not None:
                return self._render(cause, tail, plan, reusable)
        if self.deps.config.memory.readiness == "partial":
            plan = self._partial(tail, room.available(reserve=False), view)
            if plan is not None:
                return self._render(cause, tail, plan, None)
        raise NotReady(
            f"the memory of this conversation ({tail.live.turn.start_seq} records, "
            f"{self.pin.publication_end} publications) has no cover yet that fits the "
            f"{room.available(reserve=False)} tokens left; nothing is lost and nothing was sent.",
            hint="try again when `optchat status` shows no pending jobs, use a model with a larger "
            "window, or set memory.readiness to partial",
        )

    def _own_view(self) -> View:
        """The session's persisted frontier, with the leaves and parents that became durable."""
        tree = SessionTree(self.session.session_id, self.session.generation)
        view = self.tx.trees.view(tree)
        forest = self._own_forest()
        memory = self.deps.config.memory
        moved = advance(
            view,
            forest.leaf_entries(view.covered, self.lineage.length),
            forest.entry,
            high_bytes=memory.own_high_bytes,
            low_bytes=memory.own_low_bytes,
        )
        if moved is not view:
            self.tx.trees.put_view(tree, moved, self.tx.meta.next_csn())
        return moved

    def _own_forest(self) -> Forest:
        tree = SessionTree(self.session.session_id, self.session.generation)
        return Forest(self.tx, tree, number=self.session.number, lineage=self.lineage)

    def _shared_forest(self) -> Forest:
        return Forest(self.tx, ScopeTree(self.pin.scope_id), csn=Csn(self.pin.csn))

    def _reusable_base(self) -> SharedBase | None:
        """The scope's rendered base, if it stands and little was published since."""
        base = self.tx.folds.shared_base(self.scope.scope_id)
        if (
            base is None
            or base.policy_revision != self.pin.policy_revision
            or base.retention_epoch != self.pin.retention_epoch
            or base.publication_end > self.pin.publication_end
            or base.csn > self.pin.csn  # it may show summaries that this turn's snapshot has not
            or self.tx.publications.retired_since(
                self.scope.scope_id, base.csn, self.pin.publication_end
            )
        ):
            return None
        news = news_lines(self.tx, self.session, self.pin, base.publication_end)
        bound = self.deps.config.memory.shared_base_news_bytes_max
        return base if sum(len(line.encode()) for line in news) <= bound else None

    def _boundaries(
        self, cause: str, tail: Tail, target: int, covered: int, current: Fold | None
    ) -> Iterator[int]:
        """Indexes of turns from which the tail may start, best first.

        A fold that only renews the base keeps the tail; one for want of room goes down to a quarter
        of the tail's share, and further if it must. The previous exchange is kept as long as
        anything fits beside it.
        """
        turns = tail.turns
        earliest = tail.native_from()
        possible = [
            i for i in range(earliest, len(turns) + 1) if self._start(tail, i) <= covered or i == 0
        ]
        last_kept = len(turns) - 1 if self.deps.config.memory.previous_exchange else len(turns)
        if cause == "layout":
            preferred = max(0, last_kept)
        elif cause in ("tail", "fit"):
            preferred = self._within(turns, target // 4)
        else:
            kept = current.first_turn_key if current is not None else None
            keys = [t.turn.key for t in turns]
            at = keys.index(kept) if kept in keys else 0
            preferred = max(at, self._within(turns, target))
        preferred = min(preferred, max(0, last_kept))
        yield from (i for i in possible if i >= preferred and i <= last_kept)
        # The compactor is behind: a longer tail costs tokens, not memory.
        yield from (i for i in reversed(possible) if i < preferred)
        yield from (i for i in possible if i > last_kept)

    @staticmethod
    def _within(turns: tuple[TailTurn, ...], target: int) -> int:
        """The earliest index whose tail takes at most ``target`` tokens."""
        total = 0
        for index in range(len(turns) - 1, -1, -1):
            total += turns[index].tokens
            if total > target:
                return index + 1
        return 0

    @staticmethod
    def _start(tail: Tail, index: int) -> int:
        return (
            tail.turns[index].turn.start_seq
            if index < len(tail.turns)
            else tail.live.turn.start_seq
        )

    def _plan(
        self,
        cause: str,
        tail: Tail,
        available: int,
        view: View,
        reusable: SharedBase | None,
        current: Fold | None,
        *,
        grows: bool,
    ) -> _Plan | None:
        """The first boundary for which both views fit what the tail leaves.

        With ``grows`` they leave the tail its whole share, and not only what it takes now.
        """
        shared_view = self._shared_view()
        shared_forest, own_forest = self._shared_forest(), self._own_forest()
        frame = text_tokens(context.base_shared((), publication_end=0)) + 256
        shared_need = self._scaled(shared_view.rendered_tokens)
        shared_least = self._scaled(coarsest_tokens(shared_view, shared_forest.entry))
        part = self.deps.config.memory.shared_part
        memory_room = max(0, available - self._scaled(frame))
        target = int(memory_room * TAIL_PART)
        native_from = tail.native_tokens()
        for first in self._boundaries(cause, tail, target, view.covered, current):
            native = native_from[first]
            views_room = memory_room - (max(native, target) if grows else native)
            if views_room < (shared_least if reusable is None else 0):
                continue
            boundary = self._start(tail, first) if first else 0
            clipped = clip(view, boundary, own_forest.entry) if boundary else ()
            if clipped is None:
                continue
            own_need = self._scaled(sum(e.line_tokens for e in clipped))
            own_view = View(entries=clipped)
            budget = divide(
                views_room,
                shared_need=shared_need,
                own_need=own_need,
                shared_part=part,
                shared_least=shared_least,
                own_least=self._scaled(coarsest_tokens(own_view, own_forest.entry)),
            )
            own = project(own_view, own_forest.entry, budget_tokens=self._unscaled(budget.own))
            if own is None:
                continue
            # Rendered anew it may be shorter; as long as there is room, bytes already paid for win.
            spare = memory_room - native - budget.own
            if reusable is not None and self._fits_reused(reusable, spare):
                return _Plan(first, own, None, "complete")
            if budget.shared < shared_least:
                continue
            shared = project(
                shared_view, shared_forest.entry, budget_tokens=self._unscaled(budget.shared)
            )
            if shared is not None:
                return _Plan(first, own, shared, "complete")
        return None

    def _fits_reused(self, base: SharedBase, budget_tokens: int) -> bool:
        news = news_lines(self.tx, self.session, self.pin, base.publication_end)
        needed = text_tokens(base.text) + text_tokens("".join(news))
        frame = text_tokens(context.base_shared((), publication_end=0))
        return self._scaled(needed - frame) <= budget_tokens

    def _partial(self, tail: Tail, available: int, view: View) -> _Plan | None:
        """What fits of the newest, with the gap named: only where a person configured it (§6)."""
        first = len(tail.turns)
        if self.deps.config.memory.previous_exchange and first:
            last = tail.turns[-1]
            first -= 1 if last.whole and last.tokens <= available // 2 else 0
        native = sum(t.tokens for t in tail.turns[first:])
        frame = text_tokens(context.base_shared((), publication_end=0)) + 256
        room = available - native - self._scaled(frame)
        if room < 0:
            return None
        boundary = min(self._start(tail, first), view.covered) if first else 0
        own = clip(view, boundary, self._own_forest().entry) or () if boundary else ()
        shared = self._shared_view().entries
        budget = divide(
            room,
            shared_need=self._scaled(sum(e.line_tokens for e in shared)),
            own_need=self._scaled(sum(e.line_tokens for e in own)),
            shared_part=self.deps.config.memory.shared_part,
        )
        kept_own = self._newest(own, self._unscaled(budget.own))
        kept_shared = self._newest(shared, self._unscaled(budget.shared))
        missing: list[str] = []
        start = self._start(tail, first) if first else 0
        shown_from = kept_own[0].span.start if kept_own else boundary
        if shown_from or boundary < start:
            missing.append(f"records 0..{shown_from} and {boundary}..{start} are not shown")
        if len(kept_shared) < len(shared):
            at = kept_shared[0].span.start if kept_shared else self.pin.publication_end
            missing.append(f"publications 0..{at} are not shown")
        return _Plan(first, kept_own, kept_shared, "; ".join(missing) or "complete")

    @staticmethod
    def _newest(entries: tuple[Entry, ...], budget_tokens: int) -> tuple[Entry, ...]:
        kept: list[Entry] = []
        total = 0
        for entry in reversed(entries):
            total += entry.line_tokens
            if total > budget_tokens:
                break
            kept.append(entry)
        return tuple(reversed(kept))

    def _shared_view(self) -> View:
        if self.session.isolated:
            return View()
        view = self.tx.trees.view(ScopeTree(self.pin.scope_id), Csn(self.pin.csn))
        if view.covered != self.pin.publication_end:
            raise NotReady(
                f"the shared view ends at {view.covered}, not at {self.pin.publication_end}.",
                hint="optchat status",
            )
        return view

    def _scaled(self, counted: int) -> int:
        return math.ceil(counted * self.factor)

    def _unscaled(self, budget: int) -> int:
        """The inverse: what was scaled comes back whole, or a view would miss by one token."""
        return math.floor(budget / self.factor + 1e-6)

    def _render(self, cause: str, tail: Tail, plan: _Plan, reusable: SharedBase | None) -> Fold:
        publication_end = self.pin.publication_end
        if plan.shared is None and reusable is not None:
            shared_text, publication_end = reusable.text, reusable.publication_end
        else:
            lines = self._shared_forest().lines(plan.shared or ())
            shared_text = context.base_shared(lines, publication_end=publication_end)
            whole = plan.shared == self._shared_view().entries
            if whole and not self.session.isolated:
                self.tx.folds.put_shared_base(
                    SharedBase(
                        scope_id=self.scope.scope_id,
                        csn=Csn(self.pin.csn),
                        publication_end=publication_end,
                        policy_revision=self.pin.policy_revision,
                        retention_epoch=self.pin.retention_epoch,
                        text=shared_text,
                    )
                )
        boundary = self._start(tail, plan.first) if plan.first else 0
        notice = None if plan.coverage == "complete" else f"Partial memory: {plan.coverage}."
        own_text = context.base_own(
            self._own_forest().lines(plan.own),
            session=f"s{self.session.number}:{self.session.generation}",
            boundary=boundary,
            notice=notice,
        )
        key = (
            tail.turns[plan.first].turn.key if plan.first < len(tail.turns) else tail.live.turn.key
        )
        fold = Fold(
            fold_id=FoldId(self.deps.ids.new_id()),
            session_id=self.session.session_id,
            generation=self.session.generation,
            pin=self.pin,
            boundary=boundary,
            first_turn_key=key,
            publication_end=publication_end,
            shared_text=shared_text,
            own_text=own_text,
            window=self.window_key,
            cause=cause,
            coverage=plan.coverage,
            made_ms=self.deps.clock.now_ms(),
        )
        self.tx.folds.put(fold)
        return fold
