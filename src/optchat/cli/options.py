"""Options that several commands share."""

from __future__ import annotations

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
scope_option = click.option(
    "--scope", default=None, help="A scope by id or name (see: optchat status)."
)
directory_option = click.option(
    "--directory",
    default=None,
    type=click.Path(file_okay=False, resolve_path=True),
    help="A directory of the project to look at; the current one by default.",
)
