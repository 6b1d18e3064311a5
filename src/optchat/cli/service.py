"""Running the coordinator: serve, ensure, stop, status."""

from __future__ import annotations

import click

from optchat import config
from optchat.cli.options import json_option
from optchat.cli.output import emit, table
from optchat.errors import CoordinatorError, Unreachable
from optchat.wire import PROTOCOL, Health, SessionCounts, StatusResponse

STOP_TIMEOUT_S = 20.0


@click.command()
@click.option("--foreground", is_flag=True, help="Stay attached; log to standard error.")
@json_option
def serve(*, foreground: bool, as_json: bool) -> None:
    """Start the coordinator of this data directory."""
    if foreground:
        from optchat.coordinator import daemon, logs

        logs.configure()
        daemon.run(config.home())
        return
    _ensure(as_json=as_json)


@click.command()
@json_option
def ensure(*, as_json: bool) -> None:
    """Start the coordinator if none runs, and say where it answers (for plugins)."""
    _ensure(as_json=as_json)


def _ensure(*, as_json: bool) -> None:
    from optchat.coordinator import client
    from optchat.coordinator.paths import Paths

    health = client.ensure(config.home())
    socket = str(Paths(config.home()).socket)
    if as_json:
        click.echo(
            _line(
                socket=socket,
                version=health.version,
                protocol=health.protocol,
                epoch=health.epoch,
                pid=health.pid,
            )
        )
    else:
        click.echo(f"The coordinator runs as process {health.pid} for {health.home}.")


def _line(**values: object) -> str:
    """One line, because a plugin reads up to the first line end."""
    import msgspec

    return msgspec.json.encode(values).decode()


@click.command()
@json_option
def stop(*, as_json: bool) -> None:
    """Stop the coordinator; what is queued stays queued."""
    import filelock

    from optchat.coordinator.client import Client
    from optchat.coordinator.paths import Paths

    paths = Paths(config.home())
    with Client(paths) as client:
        try:
            health = client.call("/v1/stop", None, Health)
        except Unreachable:
            _stopped(as_json=as_json, pid=None)
            return
        # It closes its store when it no longer answers, and holds the lock until the very end.
        lock = filelock.FileLock(paths.lock, mode=0o600)
        try:
            lock.acquire(timeout=STOP_TIMEOUT_S, poll_interval=0.02)
        except filelock.Timeout:
            raise CoordinatorError(
                f"the coordinator (process {health.pid}) did not stop in {STOP_TIMEOUT_S:.0f} s.",
                hint=f"kill {health.pid}",
            ) from None
        lock.release()
    _stopped(as_json=as_json, pid=health.pid)


def _stopped(*, as_json: bool, pid: int | None) -> None:
    if as_json:
        emit({"stopped": pid is not None, "pid": pid})
    elif pid is None:
        click.echo("No coordinator was running.")
    else:
        click.echo(f"The coordinator (process {pid}) has stopped.")


@click.command()
@json_option
def status(*, as_json: bool) -> None:
    """Show what the memory holds, what is queued, and what is wrong."""
    from optchat.coordinator import client
    from optchat.coordinator.paths import Paths

    client.ensure(config.home())
    with client.Client(Paths(config.home())) as connection:
        found = connection.call("/v1/status", None, StatusResponse)
    if as_json:
        emit(found)
        return
    click.echo(
        f"optchat {found.health.version}, protocol {PROTOCOL}, process {found.health.pid}, "
        f"epoch {found.health.epoch}, data in {found.health.home}"
    )
    jobs = ", ".join(f"{count} {state}" for state, count in found.jobs.items() if count)
    click.echo(f"{found.records} records; summaries: {jobs or 'none'} ({found.summariser})")
    for scope in found.scopes:
        rows = [
            (s.ref, s.title, str(s.turns), str(s.records), str(s.published), _note(s))
            for s in scope.sessions
        ]
        table(
            f"{scope.name} ({scope.scope}): {scope.publications} publications",
            ("session", "title", "turns", "records", "published", "note"),
            rows,
        )
    for notice in found.notices:
        click.echo(f"! {notice}")


@click.command()
@click.option("--full", is_flag=True, help="Hash every original, not only a sample.")
@click.option(
    "--repair",
    is_flag=True,
    help="Make damaged search indexes anew and queue lost summaries; no original is removed.",
)
@json_option
@click.pass_context
def doctor(context: click.Context, *, full: bool, repair: bool, as_json: bool) -> None:
    """Look for whatever is wrong, and say what is unharmed and what to do."""
    from optchat.coordinator import doctor as doctors
    from optchat.coordinator.paths import Paths
    from optchat.coordinator.premises import look_around
    from optchat.storage.sqlite.connection import library_version
    from optchat.wire import DoctorRequest

    paths = Paths(config.home())
    found = doctors.doctor(paths, DoctorRequest(full=full, repair=repair))
    faults, notes = look_around(paths)
    found.faults += faults
    found.notes += notes
    if as_json:
        emit(found)
    else:
        click.echo(f"Data in {paths.home}, SQLite {library_version()}.")
        for count in found.checked.items():
            click.echo(f"{count[1]} {count[0]}")
        for line in found.repaired:
            click.echo(f"repaired: {line}")
        for line in found.notes:
            click.echo(f"- {line}")
        for fault in found.faults:
            click.echo(f"! {fault.what}\n  unharmed: {fault.unharmed}\n  next: {fault.next}")
        if not found.faults:
            click.echo("Nothing is wrong.")
    context.exit(1 if found.faults else 0)


def _note(session: SessionCounts) -> str:
    notes = [
        "archived" if session.archived else "",
        f"shares as chosen: {session.sharing}" if session.sharing else "",
        f"memory off because {session.disabled}" if session.disabled else "",
    ]
    return "; ".join(note for note in notes if note)
