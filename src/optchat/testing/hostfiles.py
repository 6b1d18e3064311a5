"""What the real host needs on disk and in its environment to run quietly in a folder of its own."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

Json = dict[str, Any]
PluginEntry = str | tuple[str, Mapping[str, Any]]

PROVIDER_ID = "fake"
_REPOSITORY = Path(__file__).resolve().parents[3]
_KEPT_ENVIRONMENT = (
    "PATH",
    "PYTHONPATH",
    "LANG",
    "LC_ALL",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
)
_QUIET_ENVIRONMENT = {
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_SHARE": "1",
    "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
    "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
    # A host that wants to install something must fail at once instead of blocking for a minute.
    "npm_config_registry": "http://127.0.0.1:9/",
    "npm_config_fetch_retries": "0",
    "npm_config_audit": "false",
    "npm_config_fund": "false",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model the fake provider offers, with the limits the host believes."""

    id: str
    context: int
    output: int
    input: int | None = None


TINY = ModelSpec(id="tiny-8k", context=8_192, output=1_024)
SMALL = ModelSpec(id="small-16k", context=16_384, output=2_048)
MEDIUM = ModelSpec(id="medium-64k", context=65_536, output=4_096)
BIG = ModelSpec(id="big-200k", context=200_000, output=8_192)
MODELS = (TINY, SMALL, MEDIUM, BIG)


def short_agent(*tools: str, prompt: str = "You are a test agent. Answer briefly.") -> Json:
    """Describe a primary agent with a one-line prompt and only the named tools, for small windows.

    A tool name may be a pattern, such as ``memory_*``.
    """
    allowed: Json = {"*": False, **dict.fromkeys(tools, True)}
    return {"mode": "primary", "prompt": prompt, "tools": allowed}


def find_modules() -> Path | None:
    """Find the ``node_modules`` folder that holds the host's plugin package."""
    for candidate in _module_folders():
        if (candidate / "@opencode-ai" / "plugin" / "package.json").is_file():
            return candidate
    return None


def find_binary() -> Path | None:
    """Find the host's executable: OPTCHAT_OPENCODE_BIN, then the repository's, then PATH."""
    named = os.environ.get("OPTCHAT_OPENCODE_BIN")
    if named:
        return Path(named) if Path(named).is_file() else None
    system = {"darwin": "darwin", "win32": "windows"}.get(sys.platform, "linux")
    machine = platform.machine().lower()
    processor = "arm64" if machine in {"arm64", "aarch64"} else "x64"
    for suffix in ("", "-baseline"):
        folder = _REPOSITORY / "node_modules" / f"opencode-{system}-{processor}{suffix}"
        binary = folder / "bin" / "opencode"
        if binary.is_file():
            return binary
    on_path = shutil.which("opencode")
    return Path(on_path) if on_path else None


def _module_folders() -> list[Path]:
    binary = find_binary()
    parents = list(binary.resolve().parents) if binary else []
    return [
        *(parent for parent in parents if parent.name == "node_modules"),
        _REPOSITORY / "node_modules",
    ]


RULE_CACHE = Path.home() / ".cache" / "kingfisher" / "rule-cache"


def preinstall(folder: Path) -> None:
    """Make the host believe that its plugin package is installed in this config folder.

    The host asks only whether ``node_modules`` exists and the lock names the package, so links to
    an existing copy save the five to fifteen seconds of an install.
    """
    modules = find_modules()
    if modules is None:
        return
    target = folder / "node_modules"
    target.mkdir(parents=True, exist_ok=True)
    for name in ("@opencode-ai", "zod", "effect"):
        link = target / name
        if not link.exists() and (modules / name).exists():
            link.symlink_to((modules / name).resolve(), target_is_directory=True)
    manifest = modules / "@opencode-ai" / "plugin" / "package.json"
    version = json.loads(manifest.read_text())["version"]
    wanted = {"dependencies": {"@opencode-ai/plugin": version}}
    write_json(folder / "package.json", wanted)
    write_json(folder / "package-lock.json", {"lockfileVersion": 3, "packages": {"": wanted}})


def environment(home: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Build the environment of a host that owns this home folder and touches nothing else."""
    kept = {name: os.environ[name] for name in _KEPT_ENVIRONMENT if name in os.environ}
    temporary = home / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    return {
        **kept,
        **_QUIET_ENVIRONMENT,
        "HOME": str(home),
        "XDG_CONFIG_HOME": str(home / "config"),
        "XDG_DATA_HOME": str(home / "data"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CACHE_HOME": str(home / "cache"),
        "TMPDIR": str(temporary),
        # Compiling the detector's rules takes seconds; they are those of everybody on the machine.
        "KF_RULE_CACHE_DIR": os.environ.get("KF_RULE_CACHE_DIR", str(RULE_CACHE)),
        "TERM": "xterm-256color",
        **(extra or {}),
    }


def configuration(
    base_url: str,
    *,
    plugins: Sequence[PluginEntry] = (),
    models: Sequence[ModelSpec] = MODELS,
    model: str = BIG.id,
    small_model: str | None = None,
    agents: Mapping[str, Json] | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> Json:
    """Build a host configuration with one provider on loopback and everything allowed.

    ``overrides`` is merged into it key by key; None takes a key away.
    """
    config: Json = {
        "$schema": "https://opencode.ai/config.json",
        "autoupdate": False,
        "share": "disabled",
        "snapshot": False,
        "enabled_providers": [PROVIDER_ID],
        "model": f"{PROVIDER_ID}/{model}",
        "small_model": f"{PROVIDER_ID}/{small_model or model}",
        "permission": {"*": "allow"},
        "provider": {
            PROVIDER_ID: {
                "npm": "@ai-sdk/openai-compatible",
                "name": "Fake",
                "options": {"baseURL": base_url, "apiKey": "none"},
                "models": {spec.id: _model(spec) for spec in models},
            }
        },
        "agent": dict(agents or {}),
        "plugin": [e if isinstance(e, str) else [e[0], dict(e[1])] for e in plugins],
    }
    return _merged(config, overrides or {})


def make_project(folder: Path) -> Path:
    """Make a folder that is a git work tree with one commit, so that it is a project of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / ".git").exists():
        identity = ["-c", "user.name=test", "-c", "user.email=test@localhost"]
        commands = (
            ["init", "-q"],
            [*identity, "commit", "-q", "--allow-empty", "-m", f"start {folder.name}"],
        )
        for arguments in commands:
            subprocess.run(["git", "-C", str(folder), *arguments], check=True)  # noqa: S607
    return folder


def write_json(path: Path, value: object) -> None:
    """Write a value as an indented JSON file, with its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")


def _model(spec: ModelSpec) -> Json:
    limit = {"context": spec.context, "output": spec.output}
    if spec.input is not None:
        limit["input"] = spec.input
    return {"name": spec.id, "limit": limit, "tool_call": True}


def _merged(base: Json, overrides: Mapping[str, Any]) -> Json:
    result = dict(base)
    for key, value in overrides.items():
        if value is None:
            result.pop(key, None)
            continue
        old: object = result.get(key)
        if isinstance(old, dict) and isinstance(value, Mapping):
            result[key] = _merged(cast(Json, old), cast(Json, value))
        else:
            result[key] = value
    return result
