"""Four clients at random, a coordinator that is killed, and a model that says what must come of it.

``make soak`` runs it for ten minutes; with the other tests it takes half of one (I2 to I8).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from optchat.coordinator.client import Client
from optchat.errors import Unreachable
from optchat.testing.scripted import ScriptedSession
from optchat.wire import StatusResponse
from tests.e2e.support_b import Memory, Remote, eventually, temporary_memory
from tests.harness.request_reader import check_sent
from tests.soak.clients import SoakClient, Stubborn
from tests.soak.model import Model

SECONDS = float(os.environ.get("OPTCHAT_SOAK_SECONDS", "30"))
SEED = int(os.environ.get("OPTCHAT_SOAK_SEED", str(random.SystemRandom().randrange(2**32))))
CLIENTS = 4
KILL_EVERY_S = (4.0, 12.0)
WORDS_CHECKED = 250
SETTINGS = '[compactor]\nmodel = "deterministic"\n'


@pytest.mark.timeout(SECONDS + 400)
def test_four_clients_and_a_killed_coordinator_leave_what_the_model_says() -> None:
    """§9, §12, §16; I2, I3, I5, I6, I8. The seed chooses what each client does, not when."""
    model = Model(SEED)
    with temporary_memory(SETTINGS) as memory:
        memory.ensure()
        stop = threading.Event()
        clients = [SoakClient(n, model, memory, stop) for n in range(CLIENTS)]
        sys.stdout.write(f"seed {SEED}\n")
        with ThreadPoolExecutor(CLIENTS) as pool, Client(memory.paths) as socket:
            running = [pool.submit(client.run) for client in clients]
            kills = _kill_now_and_then(memory, stop)
            stop.set()
            for done in running:
                done.result(timeout=120)
            sys.stdout.write(f"{kills} kills, {json.dumps(model.counts, sort_keys=True)}\n")
            _check(model, memory, Stubborn(memory, Remote(socket)))
        for client in clients:
            client.socket.close()
    assert kills, "nothing was killed: the soak was too short"


def _kill_now_and_then(memory: Memory, stop: threading.Event) -> int:
    chosen = random.Random(SEED)
    ends = time.monotonic() + SECONDS
    kills = 0
    while not stop.wait(min(chosen.uniform(*KILL_EVERY_S), max(0.0, ends - time.monotonic()))):
        if time.monotonic() >= ends:
            break
        with contextlib.suppress(Unreachable):  # it is not up again since the last time
            memory.kill()
            kills += 1
    return kills


def _check(model: Model, memory: Memory, coordinator: Stubborn) -> None:
    memory.ensure()
    status = eventually(lambda: _quiet(memory), 240, what="a quiet queue")
    counted = {row.host_session: row for s in status.scopes for row in s.sessions}
    assert set(counted) == {talk.session.id for talk in model.talks}
    for talk in model.talks:
        row = counted[talk.session.id]
        assert (row.records, row.published) == (talk.records, talk.turns), talk.session.id
    published = {word for talk in model.talks for word in talk.published}

    stranger = ScriptedSession(coordinator, "stranger")
    stranger.user("what was said?")
    stranger.sync()
    check_sent(stranger, stranger.assemble())
    for word in model.sample(published, WORDS_CHECKED):
        found = stranger.call("memory_search", query=f'"{word}"')
        assert found.refs, f"{word} is published and was not found"
    private = {word for talk in model.talks for word in talk.words} - published
    for word in model.sample(model.dead | private, WORDS_CHECKED):
        found = stranger.call("memory_search", query=f'"{word}"')
        assert not found.refs, f"{word} is not published and was found at {found.refs}"
    for talk in model.talks:
        past = talk.words
        talk.session.user("and where are we?")
        talk.session.sync()
        check_sent(talk.session, talk.session.assemble())
        for word in model.sample(past, 10):
            found = talk.session.call("memory_search", query=f'"{word}"', family=True)
            assert found.refs, f"{word} of {talk.session.id} was not found"
    doctor = memory.cli("doctor", "--json")
    assert doctor.status == 0, doctor


def _quiet(memory: Memory) -> StatusResponse | None:
    status = memory.status()
    busy = any(status.jobs[state] for state in ("waiting", "ready", "leased"))
    return None if busy else status
