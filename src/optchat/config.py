"""What a person may change: ``config.toml`` in the data directory, read once at start (§14).

Every field has a default; a file that is not there is all defaults. Unknown keys are errors, so
that a misspelt one is not silently ignored. No credential is read from or written to it.
"""

from __future__ import annotations

import os
import re
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
    """Who shares with whom (§11). ``default``: "project", "isolated" or a profile's name.

    ``forks`` says what becomes of the history that a fork has from a session which is forgotten:
    "keep" makes it the fork's own, "forget" takes it from the fork as well (§12).
    ``subagents`` takes in the transcripts of subagents too, as conversations of their own.
    """

    default: str = "project"
    subagents: bool = False
    isolated: list[str] = []
    forks: Literal["keep", "forget"] = "keep"
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
    each turn. A turn that outgrows the window and takes more than ``checkpoint_part`` of what the
    instructions leave is folded down to half of that. ``readiness`` "strict" stops a turn whose
    memory does not fit; "partial" sends it with what fits and says so. ``fallback`` puts a line
    that only says "needs inspection" in the place of a summary that has failed for good, so that it
    does not keep what is behind it native and its turn unpublished (§10).
    """

    layout: Literal["fold", "every-turn"] = "fold"
    shared_part: float = 0.3
    previous_exchange: bool = True
    checkpoint_part: float = 0.6
    readiness: Literal["strict", "partial"] = "strict"
    readiness_timeout_ms: int = 1_500
    fallback: bool = True
    subagent_view: bool = False
    own_high_bytes: int = OWN_VIEW_HIGH_BYTES
    own_low_bytes: int = OWN_VIEW_LOW_BYTES
    shared_high_bytes: int = SHARED_VIEW_HIGH_BYTES
    shared_low_bytes: int = SHARED_VIEW_LOW_BYTES
    news_bytes_max: int = NEWS_BYTES_MAX
    shared_base_news_bytes_max: int = SHARED_BASE_NEWS_BYTES_MAX


class Privacy(_Table, frozen=True):
    """What becomes of secrets in transcripts (§14; SECURITY.md says what is taken for one).

    ``mask`` puts their kind in their place in whatever is made of a record; the record keeps them.
    ``zoom_secrets`` says whether the original of one record, opened by its reference, shows them;
    ``export_secrets``, whether the originals in an export do.
    """

    mask: bool = True
    zoom_secrets: Literal["masked", "shown"] = "shown"
    export_secrets: Literal["masked", "shown"] = "masked"

    @property
    def masks_zoom(self) -> bool:
        return self.mask and self.zoom_secrets == "masked"

    @property
    def masks_export(self) -> bool:
        return self.mask and self.export_secrets == "masked"


class Placement(_Table, frozen=True):
    """Where the base goes: a second system message, or the head of the first message."""

    default: Literal["system", "message"] = "system"
    providers: dict[str, Literal["system", "message"]] = {}


class Caps(_Table, frozen=True):
    """What summaries may cost; a cap that is reached stops the queue until its period ends.

    A period is the person's calendar day, a turn within that day, and any hour in which no host
    was active. Tokens are input and output together, cached ones included. 0 is no cap. On by
    default and low: about 1.5 million tokens a day at most, which the small models that fit here
    serve for well under a dollar or two.
    """

    day_calls: int = 400
    day_tokens: int = 1_500_000
    turn_calls: int = 24
    turn_tokens: int = 250_000
    idle_hour_calls: int = 30
    idle_hour_tokens: int = 200_000
    payload_calls: int = 12


class Prices(_Table, frozen=True):
    """The model's price for a million tokens, in a currency of your choice, for ``spend``."""

    input: float
    output: float
    cached: float | None = None
    currency: str = "USD"


class Compactor(_Table, frozen=True):
    """The background summariser and the model that it asks.

    ``model`` "host" is the host's own model through the plugin and needs no key; "openai" is any
    endpoint that speaks chat completions, "anthropic" Anthropic's messages, both with ``url``,
    ``model_name`` and, in ``key_env``, the *name* of the environment variable that holds the key.
    ``small_model`` is what a host is asked to use, as provider/model, instead of its own choice.

    ``hold_seconds`` is how long sources of a running turn are gathered for one call; the end of the
    turn, or enough of them, ends the wait. ``batch_lines`` 1 makes one call for each node.
    ``context`` "frozen" repeats the session's earlier lines byte for byte between calls, "fresh"
    renders them anew for each.
    """

    workers: int = 2
    model: Literal["deterministic", "host", "openai", "anthropic"] = "host"
    url: str = ""
    model_name: str = ""
    key_env: str = ""
    small_model: str = ""
    timeout_seconds: float = 120.0
    cache_marks: bool | None = None
    hold_seconds: int = 600
    batch_lines: int = 24
    batch_bytes: int = 32 * 1024
    context: Literal["frozen", "fresh"] = "frozen"
    context_bytes: int = 32 * 1024
    output_tokens_max: int = 6_000
    caps: Caps = Caps()
    prices: Prices | None = None

    @property
    def hold_ms(self) -> int:
        """How long a new job waits for company; what costs nothing need not wait."""
        return 0 if self.model == "deterministic" else self.hold_seconds * 1000


class Import(_Table, frozen=True):
    """History from before the memory: with ``auto`` a project's is taken in once it is used."""

    auto: bool = True


class Coordinator(_Table, frozen=True):
    """The background process."""

    idle_exit_seconds: int = 900


class Recall(_Table, frozen=True):
    """Looking things up (§8).

    ``aliases`` lets the tools also be called by the names and parameters of other systems.
    ``automatic`` looks a new request's own words up in other conversations before it is sent:
    where it refers to earlier work ("cues"), or always. What is found within ``automatic_ms`` goes
    to the model in at most ``automatic_bytes``; what takes longer is left out.
    """

    aliases: bool = False
    automatic: Literal["off", "cues", "always"] = "off"
    automatic_bytes: int = 2_048
    automatic_ms: int = 300


class Config(_Table, frozen=True):
    """All of ``config.toml``."""

    sharing: Sharing = Sharing()
    recall: Recall = Recall()
    memory: Memory = Memory()
    placement: Placement = Placement()
    privacy: Privacy = Privacy()
    compactor: Compactor = Compactor()
    coordinator: Coordinator = Coordinator()
    import_: Import = msgspec.field(name="import", default=Import())


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
    if problem := _compactor_problem(config.compactor):
        raise _bad(path, problem)
    memory = config.memory
    if not 0 < memory.shared_part < 1:
        raise _bad(path, "memory.shared_part must lie between 0 and 1")
    if not 0 < memory.checkpoint_part < 1:
        raise _bad(path, "memory.checkpoint_part must lie between 0 and 1")
    for low, high in (
        (memory.own_low_bytes, memory.own_high_bytes),
        (memory.shared_low_bytes, memory.shared_high_bytes),
    ):
        if not 0 < low < high:
            raise _bad(path, f"a view's low bound ({low}) must be below its high bound ({high})")
    if not 256 <= config.recall.automatic_bytes <= 16_384:
        raise _bad(path, "recall.automatic_bytes must lie between 256 and 16384")
    if not 0 < config.recall.automatic_ms <= 60_000:
        raise _bad(path, "recall.automatic_ms must lie between 1 and 60000")
    reserved = {"project", "isolated"} & set(config.sharing.profiles)
    if reserved:
        raise _bad(path, f"a profile cannot be named {reserved.pop()!r}")
    named = {config.sharing.default} - {"project", "isolated"} - set(config.sharing.profiles)
    if named:
        raise _bad(path, f"sharing.default names no profile: {named.pop()!r}")
    return config


def _compactor_problem(compactor: Compactor) -> str | None:
    if compactor.model in ("openai", "anthropic") and not (compactor.url and compactor.model_name):
        return f"compactor.model = {compactor.model!r} needs compactor.url and compactor.model_name"
    if compactor.key_env and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,99}", compactor.key_env):
        # Whatever stands there may be the key itself, so that it is not repeated.
        return "compactor.key_env is no name of an environment variable"
    bounds = (
        ("workers", compactor.workers, 0, 64),
        ("batch_lines", compactor.batch_lines, 1, 64),
        ("batch_bytes", compactor.batch_bytes, 2_048, 1_048_576),
        ("context_bytes", compactor.context_bytes, 0, 262_144),
        ("output_tokens_max", compactor.output_tokens_max, 256, 100_000),
        ("timeout_seconds", compactor.timeout_seconds, 0.1, 3_600),
    )
    for name, value, low, high in bounds:
        if not low <= value <= high:
            return f"compactor.{name} must lie between {low} and {high}"
    return None


def _bad(path: Path, reason: str) -> BadInput:
    return BadInput(
        f"{path} cannot be used: {reason}. The store is unharmed.",
        hint=f"correct {path}, or move it away to use the defaults",
    )
