"""How well recall finds, on every set: the peer's, the synthetic ones, held-out seeds, LoCoMo.

Each is what ``optchat eval`` gives for that file. ``make bench NAME=retrieval`` writes a table of
``docs/performance.md`` too.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from bench._corpus import noisy, shared, synthetic
from bench._tables import replace_section
from optchat.evaluation import locomo, retrieval

HELD_OUT = (77,)
"""Seeds that nothing was tuned on and that are not the published ones."""

KEPT = ("cases", "mrr", "hit@1", "hit@5", "exclusions_broken", "missed", "latency", "constraints")


def run() -> dict[str, Any]:
    """The sets' figures, and what is to be reached."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "set.json"
        sets: dict[str, Any] = {
            "eval_v2": lambda: shared() / "data" / "retrieval" / "eval_v2.json",
            "+ 200 distractors": lambda: noisy(out, 200),
            "+ 2,000": lambda: noisy(out, 2_000),
            "synthetic, 700": lambda: synthetic(out, 700),
            "synthetic, 2,000": lambda: synthetic(out, 2_000),
        }
        for seed in HELD_OUT:
            sets[f"+ 200, seed {seed}"] = lambda seed=seed: noisy(out, 200, seed)
            sets[f"+ 2,000, seed {seed}"] = lambda seed=seed: noisy(out, 2_000, seed)
            sets[f"synthetic, 700, seed {seed}"] = lambda seed=seed: synthetic(out, 700, seed)
            sets[f"synthetic, 2,000, seed {seed}"] = lambda seed=seed: synthetic(out, 2_000, seed)
        for name, made in sets.items():
            figures = retrieval.evaluate(made())
            found[name] = {key: figures[key] for key in KEPT}
            found[name]["plain_mrr"] = figures["plain"]["mrr"]
            found[name]["competencies"] = {
                competency: row["mrr"] for competency, row in figures["competencies"].items()
            }
            print(f"{name}: {figures['mrr']} {figures['missed']}", file=sys.stderr, flush=True)
    path = shared() / "data" / "locomo" / "locomo10.json"
    splits = {"tuned on": "tune", "held out": "held-out", "all": None}
    for name, split in splits.items():
        found[f"LoCoMo, {name}"] = figures = locomo.evaluate(path, split=split)
        print(f"LoCoMo, {name}: {figures}", file=sys.stderr, flush=True)
    required = {
        "eval_v2": 1.0,
        "+ 200 distractors": 0.97,
        "+ 2,000": 0.95,
        "synthetic, 700": 0.99,
        "synthetic, 2,000": 0.99,
        "LoCoMo any@10": 0.78,
        "LoCoMo mrr": 0.52,
    }
    return {"figures": found, "baseline": {"required": required}}


def document(whole: dict[str, Any]) -> None:
    """The tables in docs/performance.md."""
    needed = whole["baseline"]["required"]
    lines = [
        "| set | cases | MRR | to reach | hit@1 | hit@5 | exclusions broken | plain FTS5's MRR |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    turns = [
        "| questions | any@1 | any@5 | any@10 | any@20 | all@10 | MRR | plain: any@10, MRR |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, row in whole["figures"].items():
        if "any@10" in row:
            plain = row["plain"]
            shown = ("any@1", "any@5", "any@10", "any@20", "all@10", "mrr")
            cells = " | ".join(f"{row[key]:.3f}" for key in shown)
            told = f"{plain['any@10']:.3f}, {plain['mrr']:.3f}"
            turns.append(f"| {name}: {row['questions']:,} | {cells} | {told} |")
            continue
        cells = " | ".join(f"{row[key]:.3f}" for key in ("hit@1", "hit@5"))
        reach = f"≥ {needed[name]}" if name in needed else ""
        lines.append(
            f"| {name} | {row['cases']} | {row['mrr']:.3f} | {reach} | {cells} | "
            f"{row['exclusions_broken']} | {row['plain_mrr']:.3f} |"
        )
    replace_section("retrieval", [*lines, "", *turns])
