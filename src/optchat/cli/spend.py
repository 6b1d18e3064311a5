"""What summaries cost, what is queued, and going on: spend, jobs, resume, rebuild."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import click

from optchat.cli.asking import call
from optchat.cli.options import directory_option, json_option, scope_option
from optchat.cli.output import emit, table
from optchat.wire import (
    JobInfo,
    JobsRequest,
    JobsResponse,
    RebuildRequest,
    RebuildResponse,
    ResumeResponse,
    SpendRequest,
    SpendResponse,
    SpendRow,
)

_COLUMNS = ("calls", "input tokens", "from cache", "output tokens", "cost")


@click.command()
@click.option("--days", default=30, show_default=True, help="How many days to look back.")
@click.option("--findings", is_flag=True, help="Also what the checks found in the answers.")
@json_option
def spend(*, days: int, findings: bool, as_json: bool) -> None:
    """Show what summaries have cost, by day, session, purpose and model, and the caps."""
    found: SpendResponse = call("/v1/spend", SpendRequest(days=days), SpendResponse)
    if as_json:
        emit(found)
        return
    for title, rows in (
        ("by day", found.by_day),
        ("by session", found.by_session),
        ("by purpose", found.by_purpose),
        ("by model", found.by_model),
    ):
        if rows:
            table(title, ("", *_COLUMNS), [_cells(row, found.currency) for row in rows])
    if not found.total.calls:
        click.echo(f"No call to a summary model in the last {days} days.")
    if found.unfinished:
        click.echo(f"{found.unfinished} calls have no answer (yet); they count as estimated.")
    caps = ", ".join(
        f"{c.name} {c.used:,} of {c.limit:,}" if c.used else f"{c.name} {c.limit:,}"
        for c in found.caps
        if c.limit
    )
    click.echo(f"Caps: {caps or 'none'}.")
    if findings:
        rows_ = [(f.model, f.prompt_version, f.finding, f"{f.times:,}") for f in found.findings]
        table("what the checks found", ("model", "prompt", "finding", "times"), rows_)
    _tell(found.notices)


@click.command()
@click.option("--retry", default=None, metavar="ID|all", help="Try a failed job again, or all.")
@click.option("--limit", default=50, show_default=True, help="How many to show of each kind.")
@json_option
def jobs(*, retry: str | None, limit: int, as_json: bool) -> None:
    """List the summaries that are set aside or wait after a failure."""
    found: JobsResponse = call("/v1/jobs", JobsRequest(retry=retry, limit=limit), JobsResponse)
    if as_json:
        emit(found)
        return
    if retry is not None:
        click.echo(f"{found.retried} jobs are tried again.")
    counts = ", ".join(f"{count} {state}" for state, count in found.counts.items() if count)
    click.echo(f"Jobs: {counts or 'none'}.")
    columns = ("id", "what", "session", "attempts", "due", "because")
    for title, rows in (("set aside", found.failed), ("waiting", found.waiting)):
        if rows:
            table(title, columns, [_job_cells(job) for job in rows])
    _tell(found.notices)


@click.command()
@json_option
def resume(*, as_json: bool) -> None:
    """Go on after a cap was reached: caps count anew from now on."""
    found: ResumeResponse = call("/v1/resume", None, ResumeResponse)
    if as_json:
        emit(found)
    else:
        click.echo(f"Summaries go on; {found.released} that were put off are due now.")


@click.command()
@click.option("--session", default=None, help="Only this session, as s12.")
@click.option("--yes", is_flag=True, help="Do it, not only estimate.")
@scope_option
@directory_option
@json_option
def rebuild(
    *, session: str | None, yes: bool, scope: str | None, directory: str | None, as_json: bool
) -> None:
    """Make summaries of an older model or prompt anew; without --yes, say what that takes."""
    request = RebuildRequest(
        session=session,
        scope=scope,
        directory=None if scope else directory or str(Path.cwd()),
        confirmed=yes,
    )
    found: RebuildResponse = call("/v1/rebuild", request, RebuildResponse)
    if as_json:
        emit(found)
    elif yes:
        click.echo(f"{found.queued} summaries are queued to be made anew.")
    else:
        click.echo(
            f"{found.nodes} summaries would be made anew: about {found.calls} calls and "
            f"{found.input_tokens:,} tokens in. To do it: optchat rebuild --yes"
        )


def _cells(row: SpendRow, currency: str) -> Sequence[str]:
    cost = "" if row.cost is None else f"{row.cost:.4f} {currency}".strip()
    return (
        row.name,
        f"{row.calls:,}",
        f"{row.input_tokens:,}",
        f"{row.cached_tokens:,}",
        f"{row.output_tokens:,}",
        cost,
    )


def _job_cells(job: JobInfo) -> Sequence[str]:
    due = datetime.fromtimestamp(job.due_ms / 1000).astimezone().strftime("%Y-%m-%d %H:%M")
    return (job.id, f"{job.kind} {job.target}", job.session, str(job.attempts), due, job.error)


def _tell(notices: Sequence[str]) -> None:
    for notice in notices:
        click.echo(f"! {notice}")
