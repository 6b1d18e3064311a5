"""``optchat``: install, run and look into the memory.

Each command is a client of the coordinator and starts it when it has to. Heavy imports stay inside
the commands, so that the ones that a host calls often start fast.
"""

from __future__ import annotations

import sys
from typing import Any

import click

from optchat import __version__
from optchat.cli.output import emit
from optchat.errors import NotOwner, OptChatError

EXIT_ERROR = 1
EXIT_NOT_OWNER = 3
"""Told apart by ``coordinator.client``, which then waits for the other coordinator."""


class _Group(click.Group):
    """Commands whose deliberate errors end in one readable message, or in JSON where asked."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except OptChatError as error:
            if "--json" in sys.argv:
                emit(
                    {
                        "error": {
                            "code": error.code,
                            "message": error.message,
                            "hint": error.hint,
                            "retryable": error.retryable,
                        }
                    }
                )
            else:
                click.echo(f"optchat: {error.message}", err=True)
                click.echo(f"  next: {error.hint}", err=True)
            ctx.exit(EXIT_NOT_OWNER if isinstance(error, NotOwner) else EXIT_ERROR)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="optchat")
def main() -> None:
    """A shared, hierarchical memory for coding agents."""


def _register() -> None:
    from optchat.cli import demo, evaluate, forget, importing, install, memory, service, spend

    for command in (
        install.install,
        install.uninstall,
        service.serve,
        service.ensure,
        service.stop,
        service.status,
        service.doctor,
        memory.sessions,
        memory.messages,
        memory.message,
        memory.search,
        memory.zoom,
        memory.date,
        memory.export,
        importing.import_,
        importing.summarise,
        memory.isolate,
        memory.share,
        memory.resync,
        forget.forget,
        spend.spend,
        spend.jobs,
        spend.resume,
        spend.rebuild,
        demo.demo,
        evaluate.evaluation,
    ):
        main.add_command(command)


_register()
