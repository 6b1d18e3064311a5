"""Looking into the memory, and deciding who shares: sessions to resync."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from optchat.cli.asking import call
from optchat.cli.options import directory_option, json_option, scope_option
from optchat.cli.output import emit
from optchat.wire import (
    ExportRequest,
    ExportResponse,
    ResyncRequest,
    ShareRequest,
    ShareResponse,
    SyncResponse,
    ToolRequest,
    ToolResponse,
)


def _tool(
    tool: Any, args: dict[str, Any], *, scope: str | None, directory: str | None, as_json: bool
) -> None:
    request = ToolRequest(
        tool=tool,
        args_json=json.dumps({k: v for k, v in args.items() if v is not None}),
        scope=scope,
        directory=None if scope else directory or str(Path.cwd()),
    )
    found: ToolResponse = call("/v1/tool", request, ToolResponse)
    if as_json:
        emit(json.loads(found.data_json))
    else:
        click.echo(found.output)


@click.command()
@click.option("--parent", default=None, help="Only the subagents of this one, as s12.")
@click.option("--search", default=None, help="Only with these words in title or directory.")
@click.option("--since", default=None, help="Only with activity from this time on (ISO, local).")
@click.option("--until", default=None, help="Only with activity before this time (ISO, local).")
@click.option("--files", is_flag=True, help="Name the files that each touched.")
@click.option("--tools", is_flag=True, help="Name the tools that each used.")
@click.option("--archived", is_flag=True, help="Also those that the host has archived.")
@click.option("--cursor", default=None, help="Go on where the page before ended.")
@scope_option
@directory_option
@json_option
def sessions(*, scope: str | None, directory: str | None, as_json: bool, **args: Any) -> None:
    """List the conversations that have published something."""
    _tool("memory_sessions", args, scope=scope, directory=directory, as_json=as_json)


@click.command()
@click.argument("session")
@click.option("--role", default=None, help="Only what user or assistant said.")
@click.option("--query", default=None, help="Only messages with all these words.")
@click.option("--limit", default=None, type=int, help="Messages on a page.")
@click.option("--cursor", default=None, help="Go on where the page before ended.")
@scope_option
@directory_option
@json_option
def messages(*, scope: str | None, directory: str | None, as_json: bool, **args: Any) -> None:
    """Read a conversation message by message, the newest first.

    SESSION is s12, or the host's id.
    """
    _tool("memory_messages", args, scope=scope, directory=directory, as_json=as_json)


@click.command()
@click.argument("ref")
@click.option("--before", default=0, help="Messages before it.")
@click.option("--after", default=0, help="Messages after it.")
@click.option("--max-tokens", default=None, type=int, help="About how much of it to show.")
@click.option("--cursor", default=None, help="Go on where the page before ended.")
@scope_option
@directory_option
@json_option
def message(*, scope: str | None, directory: str | None, as_json: bool, **args: Any) -> None:
    """Read the message that a reference leads to, whole, and those around it."""
    _tool("memory_messages", args, scope=scope, directory=directory, as_json=as_json)


@click.command()
@click.argument("query")
@click.option("--session", default=None, help="Only in this session, as s12.")
@click.option("--before", default=None, help="Only before this date or time (ISO, local).")
@click.option("--after", default=None, help="Only from this date or time on (ISO, local).")
@click.option("--cursor", default=None, help="Go on where the page before ended.")
@scope_option
@directory_option
@json_option
def search(*, scope: str | None, directory: str | None, as_json: bool, **args: Any) -> None:
    """Find words in the originals: plain words, "phrases" and -excluded ones.

    Filters may stand in the QUERY: session, project, directory, role, evidence, kind, tool, file,
    outcome, before, after, since, until, last, group and limit, as in 'tool:bash last:7d broker'.
    """
    _tool("memory_search", args, scope=scope, directory=directory, as_json=as_json)


@click.command()
@click.argument("ref")
@click.option("--cursor", default=None, help="Go on where the page before ended.")
@click.option("--max-tokens", default=None, type=int, help="About how much of an original to show.")
@scope_option
@directory_option
@json_option
def zoom(
    *,
    ref: str,
    cursor: str | None,
    max_tokens: int | None,
    scope: str | None,
    directory: str | None,
    as_json: bool,
) -> None:
    """Open a reference: a range, a publication, or a record's original."""
    args = {"ref": ref, "cursor": cursor, "max_tokens": max_tokens}
    _tool("memory_zoom", args, scope=scope, directory=directory, as_json=as_json)


@click.command()
@click.argument("ref")
@scope_option
@directory_option
@json_option
def date(*, ref: str, scope: str | None, directory: str | None, as_json: bool) -> None:
    """Tell when what a reference names happened."""
    _tool("memory_date", {"ref": ref}, scope=scope, directory=directory, as_json=as_json)


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, resolve_path=True))
@scope_option
@directory_option
@json_option
def export(*, folder: str, scope: str | None, directory: str | None, as_json: bool) -> None:
    """Write a scope as Markdown, from the top of its tree down to the originals."""
    request = ExportRequest(
        folder=folder,
        scope=scope,
        directory=None if scope else directory or str(Path.cwd()),
    )
    found: ExportResponse = call("/v1/export", request, ExportResponse)
    if as_json:
        emit(found)
    else:
        click.echo(
            f"{found.publications} turns with {found.records} originals in {found.files} files: "
            f"begin with {found.folder}/README.md"
        )


@click.command()
@click.argument("session")
@scope_option
@directory_option
@json_option
def isolate(*, session: str, scope: str | None, directory: str | None, as_json: bool) -> None:
    """Keep a session to itself: it neither publishes nor reads, and what it shared is withdrawn.

    SESSION is s12, or the host's id. What it has published is out of every read at once; from its
    next turn on it reads only its own history.
    """
    _share(session, "isolated", scope=scope, directory=directory, as_json=as_json)


@click.command()
@click.argument("session")
@click.option("--profile", default=None, help="With this profile; else with its project.")
@click.option("--configured", is_flag=True, help="Forget the choice: as config.toml says.")
@scope_option
@directory_option
@json_option
def share(
    *,
    session: str,
    profile: str | None,
    configured: bool,
    scope: str | None,
    directory: str | None,
    as_json: bool,
) -> None:
    """Have a session share from its next turn on; what was withdrawn stays withdrawn.

    SESSION is s12, or the host's id.
    """
    if profile and configured:
        raise click.UsageError("--profile and --configured exclude each other")
    sharing = None if configured else profile or "project"
    _share(session, sharing, scope=scope, directory=directory, as_json=as_json)


def _share(
    session: str, sharing: str | None, *, scope: str | None, directory: str | None, as_json: bool
) -> None:
    request = ShareRequest(
        session=session,
        sharing=sharing,
        scope=scope,
        directory=None if scope else directory or str(Path.cwd()),
    )
    found: ShareResponse = call("/v1/share", request, ShareResponse)
    if as_json:
        emit(found)
        return
    click.echo(f"From its next turn on {found.session} is in {found.next_scope}.")
    if found.withdrawn:
        click.echo(f"{found.withdrawn} turns that it had published are withdrawn.")


@click.command()
@click.argument("session")
@json_option
def resync(*, session: str, as_json: bool) -> None:
    """Enable the memory of a session again, by the host's id of it."""
    found: SyncResponse = call("/v1/resync", ResyncRequest(session=session), SyncResponse)
    if as_json:
        emit(found)
    else:
        click.echo(f"{found.session} is read anew at its next turn.")
