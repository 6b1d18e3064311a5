"""Adding our entry to a host's configuration, and taking exactly that out again."""

from __future__ import annotations

import click


@click.command()
def install() -> None:
    """Add optchat to OpenCode's configuration."""


@click.command()
def uninstall() -> None:
    """Take optchat out of OpenCode's configuration."""
