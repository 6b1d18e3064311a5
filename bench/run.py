"""Run one benchmark and write ``bench/results/NAME.json``: figures, baseline, machine.

A benchmark with ``document(whole)`` then makes its table of a document from that file.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_NOT_BENCHMARKS = {"__init__", "run"}


def names() -> list[str]:
    """The benchmarks that there are."""
    found = {path.stem for path in Path(__file__).parent.glob("*.py")}
    return sorted(n for n in found - _NOT_BENCHMARKS if not n.startswith("_"))


def machine() -> dict[str, Any]:
    """What a figure depends on; nothing that names the machine or a person."""
    return {
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }


def write(name: str, result: dict[str, Any]) -> Path:
    """Write one benchmark's result.

    Raises:
        ValueError: it has other parts than figures and baseline.
    """
    if set(result) != {"figures", "baseline"}:
        raise ValueError(f"bench.{name}.run() gave {sorted(result)}, not figures and baseline")
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    whole = {**result, "machine": machine()}
    path.write_text(json.dumps(whole, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.run", description=__doc__)
    parser.add_argument("--name", required=True, choices=names())
    name = parser.parse_args().name
    module = importlib.import_module(f"bench.{name}")
    path = write(name, module.run())
    if hasattr(module, "document"):
        module.document(json.loads(path.read_text(encoding="utf-8")))
    sys.stdout.write(path.read_text(encoding="utf-8"))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
