"""Removing from the memory, and the list of what was removed."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import click

from optchat.cli.asking import call
from optchat.cli.options import directory_option, json_option, scope_option
from optchat.cli.output import emit
from optchat.wire import (
    ForgetRequest,
    ForgetResponse,
    ForgottenRequest,
    ForgottenResponse,
    RemovalInfo,
)

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Tell what would be removed, and remove nothing."
)


@click.group()
def forget() -> None:
    """Remove from the memory, for good: every copy, summary and index of it."""


@forget.command()
@click.argument("name")
@dry_run_option
@scope_option
@directory_option
@json_option
def session(**given: Any) -> None:
    """Forget a conversation, by its number (s12) or the host's id (see: optchat status)."""
    _forget("session", **given)


@forget.command()
@click.argument("name", metavar="REF")
@dry_run_option
@scope_option
@directory_option
@json_option
def turn(**given: Any) -> None:
    """Forget one turn: a publication (pub:24), or the turn of a record (s12:0:71)."""
    _forget("turn", **given)


@forget.command()
@click.argument("name", metavar="DIR", type=click.Path(file_okay=False, resolve_path=True))
@dry_run_option
@json_option
def project(**given: Any) -> None:
    """Forget a project: all its conversations, and that it was there."""
    _forget("project", scope=None, directory=None, **given)


@forget.command()
@click.argument("name", metavar="DATE")
@dry_run_option
@scope_option
@directory_option
@json_option
def before(**given: Any) -> None:
    """Forget what ended before a date or time (ISO, local)."""
    _forget("before", **given)


@forget.command()
@click.option("--limit", default=20, show_default=True, help="How many of the last ones.")
@json_option
def log(*, limit: int, as_json: bool) -> None:
    """List earlier removals: what, when, how much, and where it is still quoted."""
    found: ForgottenResponse = call(
        "/v1/forgotten", ForgottenRequest(limit=limit), ForgottenResponse
    )
    if as_json:
        emit(found)
        return
    if not found.removals:
        click.echo("nothing was removed so far")
    for removal in found.removals:
        when = datetime.fromtimestamp(removal.at_ms / 1000).astimezone()
        click.echo(f"{when:%Y-%m-%d %H:%M}  {removal.what}: {_counts(removal)}")
        _places(removal)


def _forget(
    what: Literal["session", "turn", "project", "before"],
    *,
    name: str,
    dry_run: bool,
    scope: str | None,
    directory: str | None,
    as_json: bool,
) -> None:
    request = ForgetRequest(
        what=what,
        name=name,
        scope=scope,
        directory=None if scope else directory or str(Path.cwd()),
        dry_run=dry_run,
    )
    answer: ForgetResponse = call("/v1/forget", request, ForgetResponse)
    if as_json:
        emit(answer)
        return
    removal = answer.removal
    click.echo(f"{'would remove' if dry_run else 'removed'} {removal.what}: {_counts(removal)}")
    if answer.unreachable:
        click.echo("not reached:")
    for where in answer.unreachable:
        click.echo(f"  - {where}")
    _places(removal)


def _counts(removal: RemovalInfo) -> str:
    told = [f"{count} {kind}" for kind, count in removal.counts.items() if count]
    return ", ".join(told) or "nothing was there"


def _places(removal: RemovalInfo) -> None:
    if removal.places:
        click.echo(f"  quoted in: {', '.join(removal.places)}")
