"""The real host and the scripted model endpoint as fixtures."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from optchat.testing.hostfiles import find_binary
from optchat.testing.opencode import OpenCodeHost
from optchat.testing.provider import LoopbackProvider
from optchat.testing.stage import Recording, Stage

HERE = Path(__file__).parent
HOSTED = (HERE / "e2e", HERE / "acceptance")
"""The folders whose tests run the real host."""

RECORDER = HERE / "e2e" / "plugins" / "recorder.js"
MakeHost = Callable[..., OpenCodeHost]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = find_binary() is None and os.environ.get("CI") != "true"
    for item in items:
        if not any(folder in item.path.parents for folder in HOSTED):
            continue
        if item.get_closest_marker("hostless"):
            continue
        item.add_marker(pytest.mark.host)
        # Two cores shared with other work can make a start of the host take half a minute.
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(400))
        if missing:
            item.add_marker(pytest.mark.skip(reason="needs Node/OpenCode host"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    # A failure on the real host is explained by the host's own log more often than by ours.
    report = yield
    if call.when == "call" and report.failed:
        for host in getattr(item, "_optchat_hosts", ()):
            report.sections.append((f"log of the host on port {host.port}", host.log[-8000:]))
    return report


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with LoopbackProvider() as running:
        yield running


@pytest.fixture
def make_host(
    provider: LoopbackProvider, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[MakeHost]:
    """Start hosts with the given options; all are stopped with the test."""
    hosts: list[OpenCodeHost] = []
    request.node._optchat_hosts = hosts
    with ExitStack() as stack:

        def make(
            *, sibling_of: OpenCodeHost | None = None, start: bool = True, **options: Any
        ) -> OpenCodeHost:
            if sibling_of is not None:
                made = sibling_of.sibling(**options)
            else:
                home = options.pop("home", None) or tmp_path / f"home{len(hosts)}"
                made = OpenCodeHost(home, provider.base_url, **options)
            hosts.append(made)
            stack.callback(made.stop)
            if start:
                made.start()
            return made

        yield make
        # Gates that a failed test left shut would keep the host from stopping.
        provider.clear_plans()


@pytest.fixture
def host(make_host: MakeHost) -> OpenCodeHost:
    """A host without plugins."""
    return make_host()


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    return Recording(tmp_path / "recording.jsonl")


@pytest.fixture
def recorded_host(make_host: MakeHost, recording: Recording) -> MakeHost:
    """Start a host with the recorder plugin, which takes these options."""

    def make(recorder: dict[str, Any] | None = None, **options: Any) -> OpenCodeHost:
        return make_host(plugins=[recorder_entry(recording, recorder)], **options)

    return make


def recorder_entry(
    recording: Recording, options: dict[str, Any] | None = None
) -> tuple[str, dict[str, Any]]:
    """The recorder plugin as an entry of the host's configuration."""
    return (str(RECORDER), {"file": str(recording.path), **(options or {})})


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    home = tmp_path_factory.mktemp("stage")
    recording = Recording(home / "recording.jsonl")
    options = {"fullMessages": True, "status": True}
    with (
        LoopbackProvider() as provider,
        OpenCodeHost(home, provider.base_url, plugins=[recorder_entry(recording, options)]) as host,
    ):
        yield Stage(provider=provider, host=host, recording=recording, events=host.events())
