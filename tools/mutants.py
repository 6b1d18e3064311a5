"""Take away what each acceptance row of §16 rests on, and see its test fail.

``python tools/mutants.py [ROW...]`` copies ``src`` to a temporary folder, makes one change there,
runs the row's test file against the copy, and writes what failed into the table of
``docs/acceptance.md``. The tree itself is never changed. A mutant that no test notices is an error:
the test is too weak. Rows that are not named, and rows whose file is not there, keep their line.
``--check`` only looks whether each change has its place.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "acceptance.md"
BEGIN, END = "<!-- mutants: begin -->", "<!-- mutants: end -->"
TIMEOUT_S = 420

Edit = tuple[str, str, str]
"""A file below src/optchat, the exact text in it, and what stands there instead."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mechanism taken away. ``only`` is pytest's -k, where a part of the file is enough."""

    row: str
    removed: str
    edits: tuple[Edit, ...] = ()
    only: str = ""

    @property
    def file(self) -> str:
        return f"tests/acceptance/test_{self.row.lower().replace(' ', '_')}.py"


MUTANTS = (
    Mutant(
        "Automatic awareness",
        "a turn's pin takes in the scope's publications",
        (
            (
                "engine/pins.py",
                "publication_end=0 if session.isolated else scope.publications",
                "publication_end=0",
            ),
        ),
    ),
    Mutant(
        "Original retrieval",
        "a page of an original starts where the one before ended",
        (
            (
                "engine/retrieve.py",
                "data = reader.tx.blobs.read(record.payload, start,",
                "data = reader.tx.blobs.read(record.payload, 0,",
            ),
            (
                "engine/retrieve.py",
                "text, masks = read_text(reader.tx, record.payload, start,",
                "text, masks = read_text(reader.tx, record.payload, 0,",
            ),
        ),
    ),
    Mutant(
        "Conversation isolation",
        "a publication's line says whose it is",
        (
            (
                "engine/labels.py",
                'return f"{name} {publication.outcome.value} {when}"',
                'return f"{publication.outcome.value} {when}"',
            ),
        ),
    ),
    Mutant(
        "Concurrent publication",
        "tools read under the turn's pinned snapshot",
        (
            (
                "coordinator/readers.py",
                "return pinned(turn.pin, session.session_id, own, turn.folded_end)",
                "return newest(tx, tx.sessions.scope(session.scope_id))",
            ),
        ),
    ),
    Mutant(
        "Search isolation",
        "publications after the snapshot are filtered before anything is counted",
        (
            (
                "storage/sqlite/visible.py",
                'ALIVE = "p.seq < :end and p.born <= :csn and',
                'ALIVE = ":end >= 0 and :csn >= 0 and',
            ),
        ),
    ),
    Mutant(
        "Duplicate delivery",
        "an earlier reading of the host takes nothing back",
        (
            (
                "engine/sync.py",
                "        if request.observed_ms <= session.observed_ms:\n",
                "        if not request:\n",
            ),
        ),
    ),
    Mutant(
        "Crash boundaries",
        "a new owner ends the leases of the one that was killed",
        (("coordinator/daemon.py", "    tx.jobs.end_leases()\n", ""),),
    ),
    Mutant(
        "Slow compactor",
        "nothing partial is sent unless a person allowed it",
        (("engine/fold.py", 'if self.deps.config.memory.readiness == "partial":', "if True:"),),
    ),
    Mutant(
        "Tool protocol",
        "what is kept of the transcript goes out as the host has it, results included",
        (
            (
                "hosts/opencode/plugin/optchat.js",
                "  messages.splice(0, messages.length, ...kept);",
                "  messages.splice(0, messages.length, ...kept.filter((_, i) => i !== 1));",
            ),
        ),
    ),
    Mutant(
        "Budget pressure",
        "what does not fit the window is not sent",
        (
            ("core/budget.py", "sizes.letters * 0.28", "sizes.letters * 0.07"),
            ("core/budget.py", "sizes.symbols * 1.0", "sizes.symbols * 0.2"),
            ("core/budget.py", "sizes.other_bytes * 0.6", "sizes.other_bytes * 0.1"),
        ),
    ),
    Mutant(
        "Long active turn",
        "finished steps of a live turn that outgrows the window are folded",
        (
            (
                "engine/assemble.py",
                "live.folded(checkpoints(forest, live, name, target), request)",
                "live.folded((), request)",
            ),
        ),
    ),
    Mutant(
        "Fork",
        "what a fork inherits is not published again",
        (
            (
                "engine/publish.py",
                "return max(turn.start_seq, min(history.own_start(turn.session_id), end)), end",
                "return turn.start_seq, end",
            ),
            (
                "engine/lifecycle.py",
                "    if not common:\n        return child\n",
                "    return child\n",
            ),
            (
                "engine/sealing.py",
                "return turn.closed_ms < self._info.created_ms",
                "return False",
            ),
        ),
    ),
    Mutant(
        "Edit and rewind",
        "publications of superseded ranges are retired",
        (
            (
                "engine/lifecycle.py",
                "    for scope_id in sorted({p.scope_id for p in published}):\n",
                "    for scope_id in ():\n",
            ),
        ),
    ),
    Mutant(
        "Scope enforcement",
        "a session's ref resolves in the reader's scope, to what was published there",
        (
            (
                "storage/sqlite/sessions.py",
                "where m.scope_id = ? and m.number = ?",
                "where ? <> '' and m.number = ?",
            ),
            ("engine/visible.py", "or not self._sees(history, ref.span)", ""),
        ),
    ),
    Mutant(
        "Deletion and revocation",
        "a removal moves the retention epoch on",
        (
            (
                "engine/erase.py",
                "retention_epoch=scope.retention_epoch + 1",
                "retention_epoch=scope.retention_epoch",
            ),
        ),
    ),
    Mutant(
        "Progress fidelity",
        "a line that claims more than its source is refused",
        (
            (
                "compactor/admission.py",
                'found.append(Finding("overclaim", {"names": _shown(too_much)}))',
                "pass",
            ),
        ),
    ),
    Mutant(
        "Prompt injection",
        "what memory holds is escaped before it is rendered",
        (
            (
                "core/context.py",
                '    flat = _BLANKS.sub(" ", text)\n',
                "    return text\n    flat = text\n",
            ),
        ),
    ),
    Mutant(
        "Restart",
        "a fold is read back as it was rendered",
        (
            (
                "storage/sqlite/folds.py",
                "return None if row is None else _fold(row)",
                "return None",
            ),
        ),
    ),
)


def main(asked: list[str]) -> int:
    if asked == ["--check"]:
        return _check()
    unknown = set(asked) - {m.row for m in MUTANTS}
    if unknown:
        print(f"no such row: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    lines = _lines()
    survivors: list[str] = []
    for mutant in MUTANTS:
        if (asked and mutant.row not in asked) or not mutant.edits:
            continue
        if not (ROOT / mutant.file).exists():
            continue
        began = time.monotonic()
        caught = _caught(mutant)
        took_s = time.monotonic() - began
        print(f"{mutant.row}: {caught or 'SURVIVED'} ({took_s:.0f} s)", flush=True)
        if caught is None:
            survivors.append(mutant.row)
        else:
            lines[mutant.row] = _line(mutant, f"`{caught}`")
            _write(lines)
    if survivors:
        print(f"no test noticed: {', '.join(survivors)}", file=sys.stderr)
    return 1 if survivors else 0


def _check() -> int:
    """Whether each mechanism is still where its row says."""
    missing = [
        f"{mutant.row}: {name} does not hold once: {old!r}"
        for mutant in MUTANTS
        for name, old, _ in mutant.edits
        if (ROOT / "src" / "optchat" / name).read_text(encoding="utf-8").count(old) != 1
    ]
    print("\n".join(missing), end="\n" if missing else "", file=sys.stderr)
    return 1 if missing else 0


def _caught(mutant: Mutant) -> str | None:
    """The first test that fails without the mechanism; None when all pass."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        source = Path(folder) / "src"
        shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        (Path(folder) / "node_modules").symlink_to(ROOT / "node_modules")
        for name, old, new in mutant.edits:
            path = source / "optchat" / name
            text = path.read_text(encoding="utf-8")
            if text.count(old) != 1:
                raise SystemExit(f"{mutant.row}: {name} does not hold once: {old!r}")
            path.write_text(text.replace(old, new), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:randomly", mutant.file]
        command += ["-p", "no:cacheprovider", *(["-k", mutant.only] if mutant.only else [])]
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode not in (0, 1) or re.search(r"\d skipped", done.stdout):
        raise SystemExit(f"{mutant.row}: pytest: {done.returncode}\n{done.stdout[-3000:]}")
    found = re.search(r"^(?:FAILED|ERROR) \S+::(\w+)", done.stdout, re.MULTILINE)
    return found[1] if found else None


def _line(mutant: Mutant, caught: str) -> str:
    there = (ROOT / mutant.file).exists()
    file = f"`{mutant.file}`" if there else "not there yet"
    return f"| {mutant.row} | {file} | {mutant.removed or '–'} | {caught} |"


def _lines() -> dict[str, str]:
    """The line of each row: that of the document, unless what it says has changed since."""
    held = DOCUMENT.read_text(encoding="utf-8")
    table = held[held.index(BEGIN) : held.index(END)]
    found: dict[str, str] = {}
    for mutant in MUTANTS:
        line = _line(mutant, "–")
        was = re.search(rf"^\| {mutant.row} \|.*\| (.*) \|$", table, re.MULTILINE)
        kept = was is not None and was[0].startswith(line.removesuffix("– |"))
        found[mutant.row] = was[0] if was is not None and kept else line
    return found


def _write(lines: dict[str, str]) -> None:
    held = DOCUMENT.read_text(encoding="utf-8")
    head = "| row of §16 | test | taken away | noticed by |\n| --- | --- | --- | --- |"
    table = "\n".join([BEGIN, head, *lines.values(), END])
    before, rest = held[: held.index(BEGIN)], held[held.index(END) + len(END) :]
    DOCUMENT.write_text(before + table + rest, encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
