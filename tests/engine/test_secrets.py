"""Two hundred secrets of twelve kinds are in nothing that is made of a record (§8, §14).

They stand in what a person and a model said and in inputs and outputs of tools. Looked at is every
byte of the store but the payloads, the words of the index, whatever a request is given, whatever
the compactor asks, answers of tools, and an export.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest

from optchat.compactor.models import DeterministicModel, SummaryRequest
from optchat.compactor.worker import Worker
from optchat.config import Compactor, Config, Memory, Privacy
from optchat.coordinator import service as service_module
from optchat.coordinator.service import Service
from optchat.engine.deps import Deps
from optchat.errors import OptChatError
from optchat.storage.sqlite import SqliteStore
from optchat.testing.clockwork import CountedIds, ManualClock
from optchat.testing.scripted import ScriptedSession
from optchat.wire import ExportRequest, ModelInfo
from tests.harness.planted import Planted, look_alikes, planted, probes
from tests.harness.remains import rows, vocabulary, without_payloads

SEED = 5
COUNT = 200
SMALL = ModelInfo(provider="fake", id="small", context_tokens=16_000, output_tokens=1_000)


class _Recorded(DeterministicModel):
    """The local model, which tells what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[str] = []

    def summarise(self, request: SummaryRequest) -> str:
        self.shown += [text for _, text in request.parts]
        return super().summarise(request)


class World:
    """A store in which secrets were planted, and everything that came out of it."""

    def __init__(self, folder: Path, *, privacy: Privacy, model: Any = None) -> None:
        self.folder = folder
        config = Config(
            memory=Memory(readiness_timeout_ms=0, own_high_bytes=6_000, own_low_bytes=3_000),
            privacy=privacy,
            compactor=Compactor(model="deterministic"),
        )
        self.clock, self.model = ManualClock(), model or _Recorded()
        self.deps = Deps(config, self.clock, CountedIds())
        self.store = SqliteStore(folder / "memory.db", self.clock)
        self.service = Service(self.store, self.deps, folder)
        self.told: list[bytes] = []

    def drain(self) -> None:
        worker = Worker(self.store, self.deps, self.model, "w")
        while True:
            while worker.run_one():
                pass
            due = self.store.read(lambda tx: tx.jobs.next_due_ms())
            if due is None:
                return
            self.clock.advance(max(1, due - self.clock.now_ms()))

    def assembled(self, session: ScriptedSession) -> Any:
        answer = session.assemble()
        self.told.append(msgspec.json.encode(answer))
        return answer

    def plant(self, secrets: list[Planted]) -> ScriptedSession:
        """Turns of A with a secret each, in each place of a turn by turns; returns B, who reads."""
        a = ScriptedSession(self.service, "A", title=f"the one about {secrets[1].text}")
        a.model = SMALL
        for number, secret in enumerate(secrets):
            asked, said, given, got = ("plain words",) * 4
            match number % 4:
                case 0:
                    asked = secret.text
                case 1:
                    said = secret.text
                case 2:
                    given = secret.text
                case _:
                    # Long, so that it is summarised, with the secret where a beginning is cut.
                    got = "output " * (60 if number % 8 == 3 else 0) + secret.text
            a.user(f"turn {number}: {asked}")
            a.sync()
            self.assembled(a)
            a.assistant("let me see", tools=(("bash", {"command": given}, got),))
            a.sync()
            self.assembled(a)
            a.assistant(said, terminal="completed")
            a.sync(idle=True)
            self.drain()
        b = ScriptedSession(self.service, "B")
        b.user("what was done?")
        b.sync()
        self.assembled(b)
        return b

    def made(self) -> dict[str, bytes]:
        """Everything that is made of the records, by where it stands."""
        found = {f"answer {n}": data for n, data in enumerate(self.told)}
        found |= {f"asked {n}": t.encode() for n, t in enumerate(self.model.shown)}
        bare = self.folder / "bare.db"
        connection = apsw.Connection(str(self.folder / "memory.db"))
        connection.execute("vacuum into ?", (str(bare),))
        connection.close()
        found["words"] = vocabulary(bare)
        without_payloads(bare)
        found["bytes of the store"] = bare.read_bytes()
        found |= dict(rows(bare))
        bare.unlink()
        return found


@pytest.fixture(autouse=True)
def _no_git(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "observed_commit", lambda directory: None)


def leaks(secrets: list[Planted], found: dict[str, bytes]) -> list[tuple[str, str, bytes]]:
    """The kinds of secrets of which a part stands somewhere, and where."""
    lowered = {name: data.lower() for name, data in found.items()}
    return [
        (secret.kind, name, probe)
        for secret in secrets
        for probe in probes(secret)
        for name, data in lowered.items()
        if probe in data
    ]


def test_no_secret_is_in_what_is_made_of_records_and_each_is_in_its_own(tmp_path: Path) -> None:
    world = World(tmp_path, privacy=Privacy())
    secrets = planted(SEED, COUNT)
    b = world.plant(secrets)
    for secret in secrets[:24]:
        for query in (secret.needles[0], f'"{secret.needles[0]}"', secret.text[:200]):
            try:
                answer = b.call("memory_search", query=query)
            except OptChatError as error:
                world.told.append(error.message.encode())
                continue
            # The title repeats what was asked, which was the asker's.
            world.told.append(json.dumps(json.loads(answer.data_json)["hits"]).encode())
    for ref in ("pub:0", "pub:0+8", "pub:64+64"):
        world.told.append(msgspec.json.encode(b.call("memory_zoom", ref=ref)))
    world.told.append(msgspec.json.encode(b.call("memory_sessions")))
    world.told.append(msgspec.json.encode(world.service.status()))
    out = tmp_path / "out"
    world.service.export(ExportRequest(folder=str(out), directory="/project"))
    world.told += [p.read_bytes() for p in sorted(out.iterdir())]
    found = world.made()
    assert leaks(secrets, found) == []
    assert b"[masked: github pat]" in b"".join(found.values())
    # The originals are what they were, and are shown where one is opened by its ref.
    secret = secrets[0]
    zoomed = b.call("memory_zoom", ref="s1:0:0")
    assert all(needle in zoomed.output for needle in secret.needles)
    world.store.close()


def test_without_masking_the_same_look_finds_them(tmp_path: Path) -> None:
    """The test can fail: what it looks at is where secrets would be."""
    world = World(tmp_path, privacy=Privacy(mask=False))
    secrets = planted(SEED, 12)
    world.plant(secrets)
    places = {name for _, name, _ in leaks(secrets, world.made())}
    world.store.close()
    assert {"bytes of the store", "bare.db:node.text"} <= places
    assert any(name.startswith("asked") for name in places)
    assert any(name.startswith("answer") for name in places)


def test_a_zoom_shows_masks_where_it_is_told_to_and_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, privacy=Privacy(zoom_secrets="masked"))
    secret = next(p for p in planted(SEED, 12) if p.kind == "private key")
    a = ScriptedSession(world.service, "A")
    a.turn(secret.text, "done")
    world.drain()
    a.user("again")
    a.sync()
    a.assemble()
    pages: list[str] = []
    cursor: str | None = None
    while True:
        answer = a.call("memory_zoom", ref="s1:0:0", max_tokens=40, cursor=cursor)
        pages.append(answer.output)
        data = json.loads(answer.data_json)
        cursor = data["cursor"]
        if cursor is None:
            break
    text = "".join(pages)
    assert not any(line[:12] in text for line in secret.needles)
    assert text.count("[masked: private key]") == 1
    assert "secrets masked here, which the original has: 1" in text
    assert re.search(r"sha256 [0-9a-f]{64}", text)
    world.store.close()


def test_look_alikes_are_found_and_shown_whole(tmp_path: Path) -> None:
    world = World(tmp_path, privacy=Privacy())
    a = ScriptedSession(world.service, "A")
    for text, _ in look_alikes(SEED):
        a.turn(text, "seen")
    world.drain()
    b = ScriptedSession(world.service, "B")
    b.user("which of them?")
    b.sync()
    b.assemble()
    lost: list[str] = []
    for _, word in look_alikes(SEED):
        hits = json.loads(b.call("memory_search", query=f'"{word}"').data_json)["hits"]
        if not any(word.lower() in hit["excerpt"].lower() for hit in hits):
            lost.append(word)
    world.store.close()
    assert lost == []
