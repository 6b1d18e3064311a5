"""Putting the plugin into the host's configuration, and taking it out.

One entry in one file: ``["file://…/optchat.js", {"command": [python, "-m", "optchat"]}]`` in the
``plugin`` list. The rest of the file keeps its bytes (see `jsonc`).

Which file, as OpenCode 1.18.33 reads them (found by trying it):

- In the global folder it reads ``config.json``, ``opencode.json``, ``opencode.jsonc``, and the
  ``plugin`` list of a later file *replaces* that of an earlier one. So the entry goes into the list
  that counts; a list in a new place would switch off the plugins of another file.
- In a project it reads ``opencode.json``, ``opencode.jsonc``, then the same two in ``.opencode``,
  and the lists *add up*. So the entry goes where it is already, else into the last file.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from optchat.errors import OptChatError
from optchat.hosts.opencode import jsonc

BUNDLE = Path(__file__).with_name("plugin") / "optchat.js"
SCHEMA = "https://opencode.ai/config.json"
GLOBAL_NAMES = ("config.json", "opencode.json", "opencode.jsonc")
PROJECT_NAMES = (
    "opencode.json",
    "opencode.jsonc",
    ".opencode/opencode.json",
    ".opencode/opencode.jsonc",
)
NEW_NAME = "opencode.json"

Entry = list[Any]


class HostConfigError(OptChatError):
    """The host's configuration file cannot be edited as it is; it was not changed."""

    code = "host_config"
    status = 409


class HostConfigChanged(HostConfigError):
    """Someone else wrote the file between reading and writing; theirs stands."""

    code = "host_config_changed"
    retryable = True
    default_hint = "optchat install"


class BundleMissing(OptChatError):
    """The plugin's file is not in this installation; nothing was changed."""

    code = "bundle_missing"
    default_hint = "make plugin (in a checkout), or: pip install --force-reinstall optchat"


class Action(StrEnum):
    CREATED = "created"  # the file was not there
    ADDED = "added"
    REPLACED = "replaced"  # an entry of another installation or with other options
    UNCHANGED = "unchanged"
    REMOVED = "removed"
    DELETED = "deleted"  # the file held only what installing had written


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What was done to one file; ``notes`` are whole sentences for the person who asked."""

    action: Action
    file: Path
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Config:
    """One file as found: its bytes, its text, and its plugin list (None without that key)."""

    file: Path
    data: bytes
    text: str
    plugins: tuple[Any, ...] | None

    @property
    def ours(self) -> tuple[int, ...]:
        return tuple(i for i, entry in enumerate(self.plugins or ()) if is_ours(entry))


def plugin_entry(bundle: Path = BUNDLE, *, python: str = sys.executable) -> Entry:
    """The entry that makes the host load this installation's plugin and talk to this Python.

    Raises:
        BundleMissing: the plugin's file is not there.
    """
    if not bundle.is_file():
        raise BundleMissing(f"the plugin's bundle is missing: {bundle}")
    return [bundle.absolute().as_uri(), {"command": [python, "-m", "optchat"]}]


def is_ours(entry: Any) -> bool:
    """Whether an entry of the list is optchat's, of this installation or of another."""
    match entry:
        case str(spec) | [str(spec), *_]:
            return urlsplit(spec).path.replace("\\", "/").rpartition("/")[2] == BUNDLE.name
        case _:
            return False


def install(
    project: Path | None = None,
    *,
    entry: Entry | None = None,
    env: Mapping[str, str] = os.environ,
) -> Change:
    """Make the host load the plugin, in one project or (without ``project``) everywhere.

    Doing it again changes nothing. An entry of another installation is replaced in its place.

    Raises:
        BundleMissing: the plugin's file is not there, and no ``entry`` was given.
        HostConfigError: the file to edit cannot be read, understood or written.
    """
    entry = plugin_entry() if entry is None else entry
    folder, names = _place(project, env)
    configs = list(_found(folder, names))
    if not configs:
        file = folder / NEW_NAME
        _write(file, _new_text(entry).encode(), before=None)
        return Change(action=Action.CREATED, file=file)

    config = _to_edit(configs, lists_add_up=project is not None)
    notes = _notes(config, configs, lists_add_up=project is not None)
    if not config.ours:
        action, text = Action.ADDED, jsonc.add(config.text, entry)
    else:
        text = config.text
        for index in reversed(config.ours[1:]):
            text = jsonc.remove(text, index)
        if (config.plugins or ())[config.ours[0]] != entry:
            text = jsonc.replace(text, config.ours[0], entry)
        action = Action.UNCHANGED if text == config.text else Action.REPLACED
    if action is not Action.UNCHANGED:
        _write(config.file, text.encode(), before=config.data)
    return Change(action=action, file=config.file, notes=notes)


def uninstall(
    project: Path | None = None, *, env: Mapping[str, str] = os.environ
) -> tuple[Change, ...]:
    """Take every optchat entry out of the files that `install` considers; () if there is none.

    A file that holds only what `install` wrote is deleted. Every file is read before one is
    written, so that one that cannot be understood leaves all as they are.

    Raises:
        HostConfigError: a file cannot be read, understood or written.
    """
    changes: list[Change] = []
    for config in list(_found(*_place(project, env))):
        if not config.ours:
            continue
        if config.text == _new_text((config.plugins or ())[config.ours[0]]):
            with _as_config_error(config.file, "delete"):
                config.file.unlink()
            changes.append(Change(action=Action.DELETED, file=config.file))
            continue
        text = config.text
        for index in reversed(config.ours):
            text = jsonc.remove(text, index)
        _write(config.file, text.encode(), before=config.data)
        changes.append(Change(action=Action.REMOVED, file=config.file))
    return tuple(changes)


def installed(
    project: Path | None = None, *, env: Mapping[str, str] = os.environ
) -> tuple[tuple[Path, Any], ...]:
    """The optchat entries there are, each with its file, in the order in which the host reads them.

    Raises:
        HostConfigError: a file cannot be read or understood.
    """
    return tuple(
        (config.file, (config.plugins or ())[index])
        for config in _found(*_place(project, env))
        for index in config.ours
    )


# --- which file -----------------------------------------------------------------------------------


def _place(project: Path | None, env: Mapping[str, str]) -> tuple[Path, tuple[str, ...]]:
    if project is None:
        base = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME") or Path.home()) / ".config")
        return Path(base) / "opencode", GLOBAL_NAMES
    if not project.is_dir():
        raise HostConfigError(
            f"there is no folder {project}", hint="optchat install --project DIR, with one there"
        )
    return project.absolute(), PROJECT_NAMES


def _found(folder: Path, names: tuple[str, ...]) -> Iterator[_Config]:
    """The files that are there, in the order in which the host reads them."""
    for file in (folder / name for name in names):
        with _as_config_error(file, "read"):
            try:
                data = file.read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                continue
        try:
            text = data.decode()
            plugins = jsonc.entries(text)
        except (jsonc.JsoncError, UnicodeDecodeError) as error:
            reason = str(error) if isinstance(error, jsonc.JsoncError) else "it is not UTF-8"
            raise HostConfigError(
                f"cannot edit {file}: {reason}", hint=f"mend {file}, then: optchat install"
            ) from error
        yield _Config(file=file, data=data, text=text, plugins=plugins)


def _to_edit(configs: list[_Config], *, lists_add_up: bool) -> _Config:
    with_entry = [config for config in configs if config.ours]
    if lists_add_up:
        return (with_entry or configs)[-1]
    with_list = [config for config in configs if config.plugins is not None]
    return (with_list or configs)[-1]


def _notes(config: _Config, configs: list[_Config], *, lists_add_up: bool) -> tuple[str, ...]:
    others = [other for other in configs if other is not config]
    if not others:
        return ()
    names = ", ".join(str(other.file) for other in others)
    notes = [f"The host also reads {names}; {config.file} is the one that was chosen."]
    for other in others:
        if other.ours and lists_add_up:
            notes.append(f"{other.file} has an optchat entry too: optchat uninstall removes both.")
        elif other.ours:
            notes.append(f"The optchat entry in {other.file} has no effect.")
    return tuple(notes)


def _new_text(entry: Any) -> str:
    schema = json.dumps({"$schema": SCHEMA}, indent=2)
    return jsonc.add(schema, entry) + "\n"


# --- writing --------------------------------------------------------------------------------------


def _write(file: Path, data: bytes, *, before: bytes | None) -> None:
    """Put ``data`` in the place of ``before`` (None: no file), whole or not at all.

    A link stays a link and its target is written; mode and, where allowed, owner are kept.
    """
    with _as_config_error(file, "write"):
        target = file.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                if before is not None:
                    status = target.stat()
                    with suppress(PermissionError):
                        os.fchown(stream.fileno(), status.st_uid, status.st_gid)
                    os.fchmod(stream.fileno(), status.st_mode & 0o7777)
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            _refuse_if_changed(target, before)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _refuse_if_changed(file: Path, before: bytes | None) -> None:
    if (file.read_bytes() if file.exists() else None) != before:
        raise HostConfigChanged(f"{file} was changed meanwhile; it was left as it is")


@contextmanager
def _as_config_error(file: Path, verb: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise HostConfigError(
            f"cannot {verb} {file}: {error.strerror or error}",
            hint=f"check who owns {file}, then: optchat install",
        ) from error
