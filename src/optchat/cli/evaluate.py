"""``optchat eval``: how well recall finds, on files with known answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from optchat.cli.options import json_option
from optchat.cli.output import emit, table

file_argument = click.argument("file", type=click.Path(path_type=Path))
sample_option = click.option(
    "--sample",
    type=click.IntRange(min=1),
    default=None,
    help="Ask so many, drawn by the seed.",
)
seed_option = click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Decides the sample.",
)


@click.group("eval")
def evaluation() -> None:
    """Measure recall on a file with known answers, in a data directory of its own.

    Nothing of yours is read or changed, and no model is asked. Each command imports the file as a
    host's store, asks memory_search, and asks one plain FTS5 table over the same text.
    """


@evaluation.command()
@file_argument
@sample_option
@seed_option
@json_option
def retrieval(*, file: Path, sample: int | None, seed: int, as_json: bool) -> None:
    """Rank sessions: MRR and hits by competency, exclusions, classes of evidence, times.

    FILE is JSON: {"sessions": [{"id", "title", "directory", "parent_id", "created", "updated",
    "messages": [{"id", "role", "created", "parts": [{"id", "type": "text", "reasoning" or "tool",
    "text", or "tool", "input", "output", "error", "title", "status"}]}]}], "cases": [{"name",
    "args": {"query", "since", "until", "directory", "match", "group", "scope"}, "ctx_session",
    "relevant": [session ids], "expect": {"not_in_results", "class_in_top3",
    "max_class_in_top5"}}]}. Times are milliseconds relative to now, or since 1970 where "time_unit"
    says so. Cases that only reasoning text answers are not counted and must find nothing, or the
    command ends with 1; what is a slip away from their words may be found, and is told.
    """
    from optchat.evaluation import retrieval as runs

    found = runs.evaluate(file, sample=sample, seed=seed)
    if as_json:
        emit(found)
    else:
        _tell(found)
    if found["reasoning"]["found"]:
        raise SystemExit(1)


def _tell(found: Mapping[str, Any]) -> None:
    columns = ("mrr", "hit@1", "hit@5", "exclusions_broken")
    rows = [("all", found, found["plain"])]
    if len(found["competencies"]) > 1:
        plain = found["plain"]["competencies"]
        rows[:0] = [(name, row, plain[name]) for name, row in found["competencies"].items()]
    table(
        f"{found['file']}: {found['sessions']} sessions, {found['messages']} messages",
        ("competency", "cases", *columns, "plain FTS5's mrr"),
        [(name, *_cells(row, ("cases", *columns)), *_cells(p, ("mrr",))) for name, row, p in rows],
    )
    click.echo(
        f"{found['constraints']['checked']} constraints on evidence, "
        f"{len(found['constraints']['broken'])} broken; {found['reasoning']['cases']} cases that "
        f"need reasoning, {len(found['reasoning']['found'])} found something; {_times(found)}"
    )
    for fault in found["constraints"]["broken"]:
        click.echo(f"! {fault}")
    for name, sessions in found["reasoning"]["found"].items():
        click.echo(f"! {name}: found {', '.join(sessions)}")
    for name, sessions in found["reasoning"]["nearly"].items():
        click.echo(f"- {name}: what is nearly spelt so is in {', '.join(sessions)}")
    for told in (*found["missed"], *found["extra"]):
        click.echo(f"- {told['case']}: rank {told['rank'] or 'none'}")


@evaluation.command()
@file_argument
@click.option(
    "--split",
    type=click.Choice(["tune", "held-out"]),
    default=None,
    help="Ask only about the first three conversations, or about the others.",
)
@sample_option
@seed_option
@json_option
def locomo(*, file: Path, split: Any, sample: int | None, seed: int, as_json: bool) -> None:
    """Rank evidence turns of LoCoMo's conversations, all in one index: any@k, all@10, MRR.

    FILE is locomo10.json or a part of it. Questions without valid evidence are left out.
    """
    from optchat.evaluation import locomo as runs

    found = runs.evaluate(file, split=split, sample=sample, seed=seed)
    if as_json:
        emit(found)
        return
    columns = ("questions", "any@1", "any@5", "any@10", "any@20", "all@10", "mrr")
    rows = [(f"category {name}", row) for name, row in found["categories"].items()]
    table(
        f"{found['file']} ({found['split']}): {found['conversations']} conversations, "
        f"{found['turns']} turns",
        ("", *columns),
        [
            (name, *_cells(row, columns))
            for name, row in [*rows, ("all", found), ("plain FTS5", found["plain"])]
        ],
    )
    click.echo(_times(found))


def _cells(row: Mapping[str, Any], columns: tuple[str, ...]) -> list[str]:
    return [f"{row[c]:.3f}" if isinstance(row[c], float) else str(row[c]) for c in columns]


def _times(found: Mapping[str, Any]) -> str:
    latency = found["latency"]
    return f"a query took {latency['p50_ms']:.1f} ms (p95 {latency['p95_ms']:.1f} ms)"
