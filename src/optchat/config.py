"""What a person may change: ``config.toml`` in the data directory, read once at start (§14).

Every field has a default; a file that is not there is all defaults. Unknown keys are errors, so
that a misspelt one is not silently ignored. No credential is read from or written to it.
"""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Literal

import msgspec
import platformdirs

from optchat.core.scopes import SharingRules
from optchat.errors import BadInput
from optchat.limits import (
    NEWS_BYTES_MAX,
    OWN_VIEW_HIGH_BYTES,
    OWN_VIEW_LOW_BYTES,
    SHARED_BASE_NEWS_BYTES_MAX,
    SHARED_VIEW_HIGH_BYTES,
    SHARED_VIEW_LOW_BYTES,
)


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    pass


class Sharing(_Table, frozen=True):
    """Who shares with whom (§11). ``default``: "project", "isolated" or a profile's name."""

    default: str = "project"
    isolated: list[str] = []
    profiles: dict[str, list[str]] = {}

    def rules(self) -> SharingRules:
        return SharingRules(
            default=self.default,
            isolated=tuple(self.isolated),
            profiles=tuple((name, tuple(paths)) for name, paths in sorted(self.profiles.items())),
        )


class Memory(_Table, frozen=True):
    """How memory reaches the model (§6, §7).

    ``layout`` "fold" keeps requests append-only between folds; "every-turn" renders both views at
    each turn. ``readiness`` "strict" stops a turn whose memory does not fit; "partial" sends it
    with what fits and says so.
    """

    layout: Literal["fold", "every-turn"] = "fold"
    shared_part: float = 0.3
    previous_exchange: bool = True
    readiness: Literal["strict", "partial"] = "strict"
    readiness_timeout_ms: int = 1_500
    subagent_view: bool = False
    own_high_bytes: int = OWN_VIEW_HIGH_BYTES
    own_low_bytes: int = OWN_VIEW_LOW_BYTES
    shared_high_bytes: int = SHARED_VIEW_HIGH_BYTES
    shared_low_bytes: int = SHARED_VIEW_LOW_BYTES
    news_bytes_max: int = NEWS_BYTES_MAX
    shared_base_news_bytes_max: int = SHARED_BASE_NEWS_BYTES_MAX


class Placement(_Table, frozen=True):
    """Where the base goes: a second system message, or the head of the first message."""

    default: Literal["system", "message"] = "system"
    providers: dict[str, Literal["system", "message"]] = {}


class Compactor(_Table, frozen=True):
    """The background summariser."""

    workers: int = 2
    model: Literal["deterministic"] = "deterministic"


class Coordinator(_Table, frozen=True):
    """The background process."""

    idle_exit_seconds: int = 900


class Config(_Table, frozen=True):
    """All of ``config.toml``."""

    sharing: Sharing = Sharing()
    memory: Memory = Memory()
    placement: Placement = Placement()
    compactor: Compactor = Compactor()
    coordinator: Coordinator = Coordinator()


def home() -> Path:
    """The data directory: ``OPTCHAT_HOME``, else the platform's place for a user's data."""
    named = os.environ.get("OPTCHAT_HOME")
    return Path(named).absolute() if named else platformdirs.user_data_path("optchat")


def load(folder: Path) -> Config:
    """Read ``config.toml`` of a data directory.

    Raises:
        BadInput: it cannot be read or does not parse; the message names the key or the line.
    """
    path = folder / "config.toml"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        raise _bad(path, str(error)) from None
    try:
        config = msgspec.convert(tomllib.loads(text), Config)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise _bad(path, str(error)) from None
    memory = config.memory
    if not 0 < memory.shared_part < 1:
        raise _bad(path, "memory.shared_part must lie between 0 and 1")
    for low, high in (
        (memory.own_low_bytes, memory.own_high_bytes),
        (memory.shared_low_bytes, memory.shared_high_bytes),
    ):
        if not 0 < low < high:
            raise _bad(path, f"a view's low bound ({low}) must be below its high bound ({high})")
    named = {config.sharing.default} - {"project", "isolated"} - set(config.sharing.profiles)
    if named:
        raise _bad(path, f"sharing.default names no profile: {named.pop()!r}")
    return config


def _bad(path: Path, reason: str) -> BadInput:
    return BadInput(
        f"{path} cannot be used: {reason}. The store is unharmed.",
        hint=f"correct {path}, or move it away to use the defaults",
    )
