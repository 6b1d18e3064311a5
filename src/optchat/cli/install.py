"""Adding our entry to a host's configuration, and taking exactly that out again."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from optchat import config
from optchat.cli.options import json_option
from optchat.cli.output import emit

project_option = click.option(
    "--project",
    default=None,
    type=click.Path(exists=True, file_okay=False, resolve_path=True, path_type=Path),
    help="Only for the project in this directory; everywhere by default.",
)


@click.command()
@project_option
@json_option
def install(*, project: Path | None, as_json: bool) -> None:
    """Add optchat to OpenCode's configuration; no other byte of it is touched."""
    from optchat.hosts.opencode import install as installer

    settings = config.load(config.home())
    compactor = settings.compactor
    change = installer.install(project)
    if as_json:
        done = {"action": change.action.value, "file": str(change.file), "notes": change.notes}
        caps = msgspec.to_builtins(compactor.caps)
        emit({**done, "model": {"kind": compactor.model, "name": _named(compactor), "caps": caps}})
        return
    done = {
        installer.Action.CREATED: "was made",
        installer.Action.ADDED: "has the new entry",
        installer.Action.REPLACED: "has its entry renewed",
        installer.Action.UNCHANGED: "has the entry already",
    }[change.action]
    click.echo(f"{change.file} {done}.")
    for note in change.notes:
        click.echo(note)
    click.echo(f"Memory is kept in {config.home()}. Restart OpenCode to load the plugin.")
    itself = "is taken in once it is used" if settings.import_.auto else "is not taken in by itself"
    click.echo(f"A project's history from before {itself}; all of it: optchat import opencode")
    click.echo(_costs(compactor))


def _named(compactor: config.Compactor) -> str:
    """Which model makes the summaries, in words."""
    match compactor.model:
        case "deterministic":
            return "none: the beginnings of what is to be summarised"
        case "host" if compactor.small_model:
            return f"OpenCode's {compactor.small_model}"
        case "host":
            return "OpenCode's small_model, or without one the model of your last message"
        case "openai" | "anthropic":
            return f"{compactor.model_name} at {compactor.url}"


def _costs(compactor: config.Compactor) -> str:
    """What summaries are made with and may cost at most."""
    told = f"Summaries are made by {_named(compactor)}"
    if compactor.model == "deterministic":
        return f"{told}, which cost nothing."
    caps = compactor.caps
    bounds = [f"{caps.day_calls:,} calls"] if caps.day_calls else []
    bounds += [f"{caps.day_tokens:,} tokens"] if caps.day_tokens else []
    allowed = f"at most {' and '.join(bounds)} a day" if bounds else "without a cap for a day"
    return (
        f"{told}, {allowed}, in the background; what they used: optchat spend. Model and caps are "
        f"set in {config.home() / 'config.toml'}."
    )


@click.command()
@project_option
@json_option
def uninstall(*, project: Path | None, as_json: bool) -> None:
    """Take optchat out of OpenCode's configuration; the memory itself is kept."""
    from optchat.hosts.opencode import install as installer

    changes = installer.uninstall(project)
    if as_json:
        emit({"changes": [{"action": c.action.value, "file": str(c.file)} for c in changes]})
        return
    for change in changes:
        deleted = change.action is installer.Action.DELETED
        click.echo(f"{change.file} {'was ours alone and is gone' if deleted else 'is rid of it'}.")
    if not changes:
        click.echo("There was no entry of optchat.")
    click.echo(f"The memory in {config.home()} is kept; delete the folder to be rid of it.")
