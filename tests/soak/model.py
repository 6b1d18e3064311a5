"""What a history that several clients make at random must come to: the reference that a soak uses.

It knows nothing of trees, stores or snapshots. A conversation is its host's messages; each message
has a word of its own, so that where a word may be read says what may be seen. Words are published
with the turn that they stand in, are its own session's for ever, and are dead once no conversation
holds them.
"""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass, field

from optchat.testing.scripted import ScriptedSession, text_of
from optchat.wire import MessageInfo, ToolPart


@dataclass(slots=True, kw_only=True)
class Talk:
    """One conversation as its host has it. The first ``inherited`` messages are another's work."""

    session: ScriptedSession
    inherited: int = 0

    @property
    def words(self) -> set[str]:
        """What stands in it: its own past."""
        return {word for message in self.session.messages for word in words_of(message)}

    @property
    def published(self) -> set[str]:
        """What its finished turns tell others; inherited ones were told by another."""
        own = self.session.messages[self.inherited :]
        return {word for message in own for word in words_of(message)}

    @property
    def turns(self) -> int:
        """How many of its own turns are finished; between operations all are."""
        own = self.session.messages[self.inherited :]
        return sum(message.role == "user" for message in own)

    @property
    def records(self) -> int:
        return sum(records_of(message) for message in self.session.messages)

    def cut(self, position: int) -> None:
        """What the host does before a prompt that follows a revert."""
        del self.session.messages[position:]
        self.inherited = min(self.inherited, position)

    def starts(self) -> list[int]:
        """The positions at which a turn begins."""
        return [i for i, m in enumerate(self.session.messages) if m.role == "user"]


def words_of(message: MessageInfo) -> set[str]:
    return {word for word in text_of(message).split() if word.startswith("zq")}


def records_of(message: MessageInfo) -> int:
    """A text is one record, a tool call and its result are two (§3)."""
    return sum(2 if isinstance(part, ToolPart) else 1 for part in message.parts or [])


@dataclass(slots=True)
class Model:
    """All conversations of all clients, and the words that stand nowhere any more."""

    seed: int
    talks: list[Talk] = field(default_factory=list[Talk])
    dead: set[str] = field(default_factory=set[str])
    counts: dict[str, int] = field(default_factory=dict[str, int])
    lock: threading.Lock = field(default_factory=threading.Lock)
    story: list[str] = field(default_factory=list[str])
    _made: int = 0

    def tell(self, event: str) -> None:
        """Remember what was done, for the reader of a failure."""
        self.story.append(event)

    def about(self, word: str) -> str:
        """All that was done to the conversations that ever held a word."""
        names = {line.split()[1] for line in self.story if word in line}
        return "\n".join(line for line in self.story if set(line.split()) & names)

    def word(self) -> str:
        """A word that no other message has: letters only, so that a search takes it whole."""
        with self.lock:
            self._made += 1
            number, letters = self._made, ""
            for _ in range(6):
                number, digit = divmod(number, 26)
                letters += chr(ord("a") + digit)
            return f"zq{letters}"

    def add(self, talk: Talk) -> None:
        with self.lock:
            self.talks.append(talk)

    def count(self, what: str) -> None:
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def lose(self, words: set[str], *, of: Talk | None = None) -> None:
        """Words that a host dropped, or that ``of`` held: dead unless another talk has them."""
        with self.lock:
            if of is not None:
                self.talks.remove(of)
            held = {word for talk in self.talks for word in talk.words}
            self.dead |= words - held

    def sample(self, words: set[str], count: int) -> list[str]:
        chosen = sorted(words)
        random.Random(self.seed).shuffle(chosen)
        return chosen[:count]
