"""Taking in what was said before the memory was there: import, and having it summarised."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from optchat.cli.asking import call
from optchat.cli.options import json_option
from optchat.cli.output import emit
from optchat.wire import (
    ImportRequest,
    ImportStatus,
    ImportStatusRequest,
    SummariseRequest,
    SummariseResponse,
)

POLL_S = 0.2


@click.group(name="import")
def import_() -> None:
    """Take in history from before the memory; no model is asked."""


@import_.command()
@click.option(
    "--db",
    default=None,
    type=click.Path(resolve_path=True),
    help="The host's store; by default where OpenCode keeps it.",
)
@click.option("--since", default=None, help="Only what was used since then (ISO, local).")
@click.option(
    "--project",
    default=None,
    type=click.Path(file_okay=False, resolve_path=True),
    help="Only conversations of this directory.",
)
@click.option("--dry-run", is_flag=True, help="Count, and keep nothing.")
@json_option
def opencode(
    *, db: str | None, since: str | None, project: str | None, dry_run: bool, as_json: bool
) -> None:
    """Take in OpenCode's own history; what is known already is passed over.

    The store is only read, also while OpenCode writes to it. An import that was cut short goes on
    where it was.
    """
    from optchat.engine.recall.query import parse_time
    from optchat.hosts.opencode.transcript import place

    request = ImportRequest(
        path=db or str(place.default_path()),
        since_ms=parse_time(since, "--since") if since else 0,
        project=project,
        dry_run=dry_run,
    )
    _run(request, as_json=as_json)


@import_.command(name="memory-tree")
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, resolve_path=True))
@click.option(
    "--project",
    default=None,
    type=click.Path(file_okay=False, resolve_path=True),
    help="The directory that it was used in; by default the one that holds .opencode, or this one.",
)
@click.option("--dry-run", is_flag=True, help="Count, and keep nothing.")
@json_option
def memory_tree(*, folder: str, project: str | None, dry_run: bool, as_json: bool) -> None:
    """Take in the trees of opencode-memory-tree: their originals, not their summaries.

    DIR is its folder, such as .opencode/plugins/memory-tree. Conversations that the memory has from
    the host itself are passed over: take those in first.
    """
    above = Path(folder).parents
    holder = next((str(p.parent) for p in above if p.name == ".opencode"), str(Path.cwd()))
    request = ImportRequest(
        path=folder, form="memory-tree", project=project or holder, dry_run=dry_run
    )
    _run(request, as_json=as_json)


def _run(request: ImportRequest, *, as_json: bool) -> None:
    """Have an import done and tell of it; the command fails when it ended early."""
    status: ImportStatus = call("/v1/import", request, ImportStatus)
    status = _follow(status, is_shown=not as_json)
    if as_json:
        emit(status)
    else:
        _tell(status)
    if status.error is not None:
        raise SystemExit(1)


def _follow(status: ImportStatus, *, is_shown: bool) -> ImportStatus:
    """Wait for the end of an import; progress is drawn where somebody looks."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns: tuple[Any, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, disable=not is_shown or not console.is_terminal
    ) as bar:
        task = bar.add_task("sessions", total=None)
        while True:
            bar.update(task, total=status.total or None, completed=status.done)
            if not status.running:
                return status
            time.sleep(POLL_S)
            status = call("/v1/import-status", ImportStatusRequest(id=status.id), ImportStatus)


def _tell(status: ImportStatus) -> None:
    would = "would be read" if status.dry_run else "were read"
    click.echo(f"{status.path}: {status.total:,} sessions, {status.sessions:,} of them {would}.")
    if not status.dry_run:
        click.echo(f"{status.records:,} records are new.")
    for reason, count in sorted(status.skipped.items()):
        click.echo(f"  {count:,} passed over: {reason}")
    for name in status.unreadable:
        click.echo(f"! {name} cannot be read; the others are taken in.")
    if status.error is not None:
        click.echo(f"! {status.error.message}\n  next: {status.error.hint}")


@click.command()
@click.option("--since", default=None, help="Only turns that ended since then (ISO, local).")
@click.option(
    "--project",
    default=None,
    type=click.Path(file_okay=False, resolve_path=True),
    help="Only conversations of this directory.",
)
@click.option("--yes", is_flag=True, help="Do it, not only estimate.")
@json_option
def summarise(*, since: str | None, project: str | None, yes: bool, as_json: bool) -> None:
    """Have history that was taken in summarised; without --yes, say what that takes."""
    from optchat.engine.recall.query import parse_time

    since_ms = parse_time(since, "--since") if since else 0
    request = SummariseRequest(since_ms=since_ms, project=project, confirmed=yes)
    found: SummariseResponse = call("/v1/summarise", request, SummariseResponse)
    if as_json:
        emit(found)
        return
    if not found.turns:
        click.echo("Every turn of that time has a summary, or one is queued.")
        return
    cost = "" if found.cost is None else f", {found.cost:.2f} {found.currency}"
    click.echo(
        f"{found.turns:,} turns: about {found.calls:,} calls, {found.input_tokens:,} tokens in and "
        f"{found.output_tokens:,} out{cost}."
    )
    if found.days > 1:
        click.echo(f"Within the daily caps that takes {found.days:,} days (see: optchat spend).")
    if yes:
        click.echo("They are queued, behind what live conversations need.")
    else:
        click.echo("To do it: the same command with --yes.")
