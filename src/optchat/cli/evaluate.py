"""``optchat eval``: how well recall finds what is there, measured on files of questions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from optchat.cli.options import json_option
from optchat.cli.output import emit

_FILE = click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))


@click.group("eval")
def evaluate() -> None:
    """Measure search on a file of questions, in a temporary store. No model is called."""


@evaluate.command()
@_FILE
@json_option
def retrieval(*, file: Path, as_json: bool) -> None:
    """Sessions of the common form: mrr, hits and broken exclusions, by competency."""
    from optchat.evaluation import run, sets

    _print(run.retrieval(sets.load(file)), as_json=as_json)


@evaluate.command()
@_FILE
@click.option("--first", type=int, default=None, help="Only the first so many conversations.")
@json_option
def locomo(*, file: Path, first: int | None, as_json: bool) -> None:
    """LoCoMo by evidence turns, one index for all, beside plain FTS5 on the same text."""
    from optchat.evaluation import run, sets

    chosen = range(first) if first is not None else None
    _print(run.conversations(sets.load(file), chosen), as_json=as_json)


def _print(figures: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        emit(figures)
        return
    for name, value in figures.items():
        click.echo(f"{name}: {value}")
