"""``optchat demo``: the story of two sessions, told and checked."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from optchat.cli.options import json_option
from optchat.cli.output import emit


@click.command()
@json_option
def demo(*, as_json: bool) -> None:
    """Tell the story of two sessions that share a memory, and check what was really sent.

    On the real OpenCode with a model of this machine that only plays its part; with --json, or
    without OpenCode, through the coordinator alone. Nothing of yours is read or changed.
    """
    from optchat.testing import hostfiles, stages, story

    # The socket's path has a bound, so that the folder is a short one.
    with tempfile.TemporaryDirectory(prefix="oc-") as folder:
        binary = None if as_json else hostfiles.find_binary()
        if binary is None:
            stage = stages.CoordinatorStage(Path(folder) / "memory")
        else:
            from optchat.hosts.opencode.install import BUNDLE

            stage = stages.HostStage(Path(folder), BUNDLE)
        try:
            told = story.tell(stage)
        finally:
            stage.close()
    if as_json:
        emit({"passed": told.passed, "checks": told.checks})
    else:
        _tell(told, host=binary is not None)
    if not told.passed:
        raise SystemExit(1)


def _tell(told: object, *, host: bool) -> None:
    from optchat.testing.story import QUESTION, Story

    assert isinstance(told, Story)
    where = "the real OpenCode" if host else "the coordinator alone (OpenCode was not found)"
    click.secho(f"Two sessions share a memory, on {where}.\n", bold=True)
    click.echo(f"Session A was asked: {QUESTION}")
    click.echo("Session A decided, and ended. Session B is new. Its first request holds:\n")
    click.secho(_indented(told.memory), fg="cyan")
    click.echo("\nB follows the reference down to what A really said:")
    for step, answer in told.steps:
        click.secho(f"\n$ {step}", bold=True)
        click.secho(_indented(answer), fg="cyan")
    click.echo()
    for check in told.checks:
        mark = click.style("holds", fg="green") if check.passed else click.style("FAILS", fg="red")
        click.echo(f"  {mark}  {check.name}" + (f": {check.seen}" if not check.passed else ""))
    good = sum(check.passed for check in told.checks)
    click.echo(f"\n{good} of {len(told.checks)} checks hold.")


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.rstrip().splitlines())
