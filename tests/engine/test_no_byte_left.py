"""Three hundred planted strings are on no byte of the disk after a removal (§12, I8)."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Callable, Iterator

import pytest

from optchat.storage.ports import Chunk
from optchat.wire import FilePart, ForgetRequest, TextPart
from tests.harness.remains import forms, remains

SEED = 20_261_130
COUNT = 300


class Planted:
    """Distinct strings, each used once in one place; some with what JSON has to escape."""

    def __init__(self) -> None:
        self._random = random.Random(SEED)
        self.by_place: dict[str, list[str]] = {}

    @property
    def words(self) -> list[str]:
        return [word for words in self.by_place.values() for word in words]

    def __call__(self, place: str) -> str:
        token = hashlib.sha256(str(self._random.random()).encode()).hexdigest()[:20]
        shape = (f"zq{token}", f'zq{token[:9]}"{token[9:]}', f"zq{token[:9]}é{token[9:]}")
        word = shape[len(self.words) % 3]
        self.by_place.setdefault(place, []).append(word)
        return word


class Telling:
    """A summary model that adds a string of its own to everything that it makes."""

    name = "telling"
    prompt_version = "1"

    def __init__(self, plant: Callable[[str], str]) -> None:
        self.plant = plant

    def summarise(self, request) -> str:
        told = " ".join(text for _, text in request.parts)
        own = self.plant("summary") if "zq" in told else "nothing"
        return f"{own} of {told}"[:240]


@pytest.fixture
def planted() -> Planted:
    return Planted()


def fill(bench, plant: Planted) -> None:
    """A says everything that is planted, in every kind of place; B is told of it and goes on."""
    bench.model = Telling(plant)
    a, b = bench.session("A", title=plant("title")), bench.session("B")
    b.turn("before all", "of it")
    big = "".join(f"line {n} of a long output\n" for n in range(3_000))  # several stored chunks
    for n in range(12):
        a.user(f"please {plant('request')} now, " + "and more " * (n % 3 * 60))
        a.sync()
        a.assemble()
        a.assistant(
            f"done {plant('answer')} " + f"as {plant('answer')} was " * 30,
            tools=(
                ("bash", {"command": plant("argument")}, f"{plant('output')}\n" * 40),
                ("read", {"path": plant("path")}, big[:n] + big + plant("end of a large payload")),
            ),
        )
        a._add(
            "user",
            [
                TextPart(id=f"x{n}", text=plant("steering")),
                FilePart(id=f"f{n}", mime="text/plain", filename=plant("file name")),
            ],
            opens=False,
        )
        a.assistant(f"and {plant('answer')} it was", terminal="completed")
        a.sync(idle=True)
        bench.drain()
        b.turn(f"what is new? {n}", "I see " * 50)
        bench.drain()
        if n == 6:
            a.edited(0, f"instead {plant('edited request')}")
            a.sync(idle=True)
            bench.drain()
    for record in bench.history("A"):
        if record.payload_bytes > 64 * 1_024:
            chunk = Chunk(
                payload=record.payload,
                plan="1 16384 12",
                level=0,
                position=0,
                start=0,
                end_exclusive=16_384,
                read=16_384,
                text=plant("chunk tree"),
            )
            bench.store.write(lambda tx, c=chunk: tx.chunks.put(c))
    # An error that quotes what it stumbled over, on a job that is set aside.
    a.user(f"unfinished {plant('open request')} " * 20)
    a.sync()
    job = bench.store.write(lambda tx: tx.jobs.claim("w", bench.clock.now_ms(), 1_000))
    assert job is not None
    bench.store.write(
        lambda tx: tx.jobs.release(
            job.job_id, job.token, not_before_ms=0, error=plant("error"), failed=True
        )
    )
    a.assistant(f"{plant('answer')}", terminal="completed")
    a.sync(idle=True)
    while len(plant.words) < COUNT:
        a.turn(plant("request"), plant("answer"))
        bench.drain()
    (bench.folder / "memory.db.schema1.bak").write_text(plant("backup"))


def scratch(bench):
    return bench.folder.with_name("copy")


def test_the_scan_finds_what_is_planted(bench, planted):
    """The test can fail: before the removal, each string of what is kept is found (I8)."""
    fill(bench, planted)
    bench.store.checkpoint()
    kept = [w for place, words in planted.by_place.items() if place != "title" for w in words]
    found = remains(bench.folder, kept, scratch(bench))
    # A summary is told again where it stands; one that was cut, or made anew since, is not kept.
    missing = set(kept) - set(found) - set(planted.by_place["summary"])
    assert not missing
    assert len(planted.words) >= COUNT


@pytest.mark.parametrize(
    "what, name", [("session", "A"), ("before", "2100-01-01"), ("project", "/project")]
)
def test_no_planted_string_is_left_after_a_removal(bench, planted, what, name):
    fill(bench, planted)
    request = ForgetRequest(what=what, name=name, directory="/project")
    answer = bench.service.forget(request)
    assert not [line for line in answer.unreachable if "store's" in line]
    words = planted.words
    assert remains(bench.folder, words, scratch(bench)) == {}
    assert (bench.folder / "memory.db-wal").stat().st_size <= 32 * 1_024
    bench.drain()
    bench.reopen()
    assert remains(bench.folder, words, scratch(bench)) == {}


def test_every_form_of_a_string_is_looked_for():
    """Plain, escaped for JSON, and base64 at each of the three alignments."""

    def whole(word: str) -> Iterator[bytes]:
        yield word.encode()
        yield json.dumps({"a": word}).encode()
        for before in ("", "x", "xy"):
            yield base64.b64encode(f"{before}{word}tail".encode())

    for word in ('zq0123456789abc"def', "zq0123456789abcédef"):
        for data in whole(word):
            assert any(form in data for form in forms(word)), (word, data)
