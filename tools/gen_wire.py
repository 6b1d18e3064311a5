"""Write the plugin's types from the protocol: ``wire.py`` is the one place where a field is named.

``--check`` writes nothing and fails when the file is stale.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec

from optchat import wire

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "plugins" / "opencode" / "src" / "wire.gen.ts"
COMMAND = ROOT / "node_modules" / ".bin" / "json2ts"
FORMATTER = ROOT / "node_modules" / ".bin" / "biome"
HEADER = "// Generated from src/optchat/wire.py by tools/gen_wire.py. Do not edit.\n\n"


def schema() -> dict[str, Any]:
    """Every structure of the protocol as one JSON Schema, in order of name."""
    used = {kind for pair in wire.ROUTES.values() for kind in pair if kind} | {wire.ErrorBody}
    kinds = sorted(used, key=lambda kind: kind.__name__)
    _, components = msgspec.json.schema_components(kinds, ref_template="#/definitions/{name}")
    definitions = {name: _without_title(components[name]) for name in sorted(components)}
    for _, answer in wire.ROUTES.values():
        # The coordinator leaves nothing out of an answer, so what has a default is there as well.
        definitions[answer.__name__]["required"] = list(definitions[answer.__name__]["properties"])
    return {"title": "Wire", "type": "object", "definitions": definitions}


def routes() -> str:
    """The routes as a TypeScript interface, and the constants of the protocol."""
    lines = [
        f'  "{path}": {{ request: {_name(q)}; answer: {_name(a)} }};'
        for path, (q, a) in wire.ROUTES.items()
    ]
    return (
        f"export const PROTOCOL = {wire.PROTOCOL};\n"
        f'export const PROTOCOL_HEADER = "{wire.PROTOCOL_HEADER}";\n\n'
        f"/** Our own tools. */\nexport const TOOLS = {_tuple(wire.TOOL_NAMES)};\n\n"
        "/** Tools of other systems under which ours can be called as well. */\n"
        f"export const ALIASES = {_tuple(wire.ALIAS_NAMES)};\n\n"
        "/** Every path with its request and answer. */\n"
        "export interface Routes {\n" + "\n".join(lines) + "\n}\n"
    )


def render() -> str:
    """The whole file, formatted."""
    options = [
        "--unreachableDefinitions",
        "--additionalProperties=false",
        "--format=false",
        "--bannerComment=",
    ]
    types = _run([str(COMMAND), *options], json.dumps(schema()))
    path = f"--stdin-file-path={TARGET}"
    text = _run([str(FORMATTER), "format", path], f"{HEADER}{types}\n{routes()}")
    # The root exists only to carry the definitions, and is not worth a name or a mention.
    text = text.replace("export interface Wire {}\n", "")
    return re.sub(
        r"(\n \*)?\n \* This interface was referenced by [^\n]*\n[^\n]*\n \*/", "\n */", text
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="fail when the file is stale")
    check = parser.parse_args().check
    text = render()
    if not check:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print("gen_wire: wire.gen.ts is stale, run: python tools/gen_wire.py", file=sys.stderr)
        return 1
    return 0


def _without_title(definition: dict[str, Any]) -> dict[str, Any]:
    # The generator would give a type of its own to whatever has a title.
    return {key: value for key, value in definition.items() if key != "title"}


def _tuple(names: tuple[str, ...]) -> str:
    return f"[{', '.join(json.dumps(name) for name in names)}] as const"


def _name(kind: type[Any] | None) -> str:
    return kind.__name__ if kind else "undefined"


def _run(command: list[str], text: str) -> str:
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, check=False, cwd=ROOT
    )
    if done.returncode:
        raise SystemExit(f"gen_wire: {Path(command[0]).name}: {done.stderr}")
    return done.stdout


if __name__ == "__main__":
    raise SystemExit(main())
