"""What every unit of work is given from outside: configuration, time and ids."""

from __future__ import annotations

from dataclasses import dataclass

from optchat.config import Config
from optchat.storage.ports import Clock, IdSource


@dataclass(frozen=True, slots=True)
class Deps:
    """Injected, so that tests decide them."""

    config: Config
    clock: Clock
    ids: IdSource
