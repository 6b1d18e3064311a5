"""Adding our entry to a host's configuration, and taking exactly that out again."""

from __future__ import annotations

from pathlib import Path

import click

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

    change = installer.install(project)
    if as_json:
        emit({"action": change.action.value, "file": str(change.file), "notes": change.notes})
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
