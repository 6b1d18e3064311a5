"""How commands print: JSON for programs, plain lines and tables for persons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import click
import msgspec


def emit(value: Any) -> None:
    """Print a value as one JSON document."""
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table; text from transcripts is shown as it is, never as markup."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawn = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for column in columns:
        drawn.add_column(column)
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    Console().print(drawn)
