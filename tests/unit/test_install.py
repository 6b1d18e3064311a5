"""Installing writes one entry into one file, and uninstalling leaves no trace of it."""

import json
import stat
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from optchat.cli.main import main
from optchat.errors import OptChatError
from optchat.hosts.opencode import install as target
from optchat.hosts.opencode.install import (
    Action,
    BundleMissing,
    HostConfigChanged,
    HostConfigError,
    install,
    installed,
    is_ours,
    plugin_entry,
    uninstall,
)

ENTRY = ["file:///new/optchat.js", {"command": ["python", "-m", "optchat"]}]
OLD = ["file:///old/optchat.js", {"command": ["other"]}]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "config" / "opencode"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(home.parent)}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def plugins(file: Path) -> object:
    return json.loads(file.read_text())["plugin"]


# --- the entry ------------------------------------------------------------------------------------


def test_the_entry_names_the_bundle_as_a_url_and_this_python(tmp_path: Path) -> None:
    bundle = tmp_path / "a folder" / "optchat.js"
    bundle.parent.mkdir()
    bundle.touch()
    url, options = plugin_entry(bundle)
    assert url.startswith("file:///")
    assert url.endswith("/a%20folder/optchat.js")
    assert options == {"command": [sys.executable, "-m", "optchat"]}


def test_without_a_bundle_nothing_is_written(tmp_path: Path) -> None:
    with pytest.raises(BundleMissing):
        plugin_entry(tmp_path / "optchat.js")


@pytest.mark.parametrize(
    "entry,ours",
    [
        (ENTRY, True),
        ("file:///somewhere/optchat.js", True),
        ("/somewhere/optchat.js", True),
        (["./optchat.js"], True),
        ("file:///somewhere/notoptchat.js", False),
        ("file:///optchat.js/other.js", False),
        ("other-plugin@1.0", False),
        ([], False),
        ([{"optchat.js": 1}], False),
        (None, False),
    ],
)
def test_an_optchat_entry_is_known_by_its_file_name(entry: object, ours: bool) -> None:
    assert is_ours(entry) is ours


# --- everywhere -----------------------------------------------------------------------------------


def test_a_missing_file_is_created_and_goes_again(home: Path, env: dict[str, str]) -> None:
    home.rmdir()
    change = install(entry=ENTRY, env=env)
    assert (change.action, change.file) == (Action.CREATED, home / "opencode.json")
    assert plugins(change.file) == [ENTRY]
    assert installed(env=env) == ((change.file, ENTRY),)
    assert [c.action for c in uninstall(env=env)] == [Action.DELETED]
    assert list(home.iterdir()) == []


def test_a_created_file_that_someone_added_to_is_kept(home: Path, env: dict[str, str]) -> None:
    file = install(entry=ENTRY, env=env).file
    file.write_text(file.read_text().replace('",\n  "plugin', '",\n  "model": "x/y",\n  "plugin'))
    assert [c.action for c in uninstall(env=env)] == [Action.REMOVED]
    assert json.loads(file.read_text()) == {"$schema": target.SCHEMA, "model": "x/y"}


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{\n  "model": "a/b", // mine\n}\n',
        b'\xef\xbb\xbf{\r\n\t"plugin": [\r\n\t\t"x", /* y */\r\n\t],\r\n}',
        b'{"plugin": []}',
        '{ "theme": "\u00e9" }'.encode(),
    ],
)
def test_installing_and_uninstalling_gives_the_same_bytes(
    home: Path, env: dict[str, str], text: bytes
) -> None:
    file = home / "opencode.jsonc"
    file.write_bytes(text)
    assert install(entry=ENTRY, env=env).action is Action.ADDED
    with_entry = file.read_bytes()
    assert install(entry=ENTRY, env=env).action is Action.UNCHANGED
    assert file.read_bytes() == with_entry
    assert [c.action for c in uninstall(env=env)] == [Action.REMOVED]
    assert file.read_bytes() == text
    assert uninstall(env=env) == ()


def test_an_older_entry_is_replaced_in_its_place(home: Path, env: dict[str, str]) -> None:
    file = home / "opencode.json"
    file.write_text(json.dumps({"plugin": ["a", OLD, "b", "/again/optchat.js"]}))
    assert install(entry=ENTRY, env=env).action is Action.REPLACED
    assert plugins(file) == ["a", ENTRY, "b"]


def test_a_global_list_that_counts_is_never_hidden_by_a_new_one(
    home: Path, env: dict[str, str]
) -> None:
    (home / "opencode.json").write_text('{"plugin": ["a"]}')
    (home / "opencode.jsonc").write_text('{"model": "a/b"}')
    change = install(entry=ENTRY, env=env)
    assert change.file == home / "opencode.json"
    assert str(home / "opencode.jsonc") in change.notes[0]
    assert plugins(change.file) == ["a", ENTRY]
    assert (home / "opencode.jsonc").read_text() == '{"model": "a/b"}'


def test_a_global_entry_in_a_list_that_does_not_count_is_reported(
    home: Path, env: dict[str, str]
) -> None:
    (home / "opencode.json").write_text(json.dumps({"plugin": [OLD]}))
    (home / "opencode.jsonc").write_text('{"plugin": ["a"]}')
    change = install(entry=ENTRY, env=env)
    assert change.file == home / "opencode.jsonc"
    assert any("no effect" in note for note in change.notes)
    assert plugins(home / "opencode.json") == [OLD]
    assert [c.file.name for c in uninstall(env=env)] == ["opencode.json", "opencode.jsonc"]


def test_without_xdg_the_folder_is_below_the_home_folder(tmp_path: Path) -> None:
    change = install(entry=ENTRY, env={"HOME": str(tmp_path)})
    assert change.file == tmp_path / ".config" / "opencode" / "opencode.json"


# --- one project ----------------------------------------------------------------------------------


def test_a_project_without_a_file_gets_one(project: Path, home: Path, env: dict[str, str]) -> None:
    change = install(project, entry=ENTRY, env=env)
    assert (change.action, change.file) == (Action.CREATED, project / "opencode.json")
    assert list(home.iterdir()) == []


def test_in_a_project_the_file_read_last_is_edited(project: Path) -> None:
    (project / ".opencode").mkdir()
    for name in ("opencode.jsonc", ".opencode/opencode.json"):
        (project / name).write_text("{}")
    change = install(project, entry=ENTRY)
    assert change.file == project / ".opencode" / "opencode.json"
    assert (project / "opencode.jsonc").read_text() == "{}"


def test_in_a_project_the_file_with_our_entry_is_edited(project: Path) -> None:
    (project / "opencode.json").write_text(json.dumps({"plugin": [OLD]}))
    (project / "opencode.jsonc").write_text("{}")
    change = install(project, entry=ENTRY)
    assert (change.action, change.file) == (Action.REPLACED, project / "opencode.json")
    assert plugins(change.file) == [ENTRY]


def test_a_missing_project_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostConfigError):
        install(tmp_path / "nowhere", entry=ENTRY)


# --- the file itself ------------------------------------------------------------------------------


def test_mode_and_link_are_kept(home: Path, env: dict[str, str], tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "oc.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o600)
    link = home / "opencode.json"
    link.symlink_to(real)
    install(entry=ENTRY, env=env)
    assert link.is_symlink()
    assert plugins(real) == [ENTRY]
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert [f.name for f in real.parent.iterdir()] == ["oc.json"]


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"plugin": 1}', b'{"a": "\xff"}'])
def test_what_cannot_be_understood_is_left_alone_and_named(
    home: Path, env: dict[str, str], text: bytes
) -> None:
    file = home / "opencode.json"
    file.write_bytes(text)
    for act in (lambda: install(entry=ENTRY, env=env), lambda: uninstall(env=env)):
        with pytest.raises(OptChatError) as caught:
            act()
        assert str(file) in str(caught.value)
        assert "optchat install" in caught.value.hint
    assert file.read_bytes() == text


def test_someone_elses_write_in_between_stands(
    home: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / "opencode.json"
    file.write_text("{}")
    add = target.jsonc.add

    def add_while_another_writes(text: str, entry: object) -> str:
        file.write_text('{"model": "a/b"}')
        return add(text, entry)

    monkeypatch.setattr(target.jsonc, "add", add_while_another_writes)
    with pytest.raises(HostConfigChanged):
        install(entry=ENTRY, env=env)
    assert file.read_text() == '{"model": "a/b"}'
    assert [f.name for f in home.iterdir()] == ["opencode.json"]


def test_a_write_that_fails_is_reported_with_its_file(
    home: Path, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(target.os, "fsync", no_space)
    with pytest.raises(HostConfigError, match=r"opencode\.json: No space left"):
        install(entry=ENTRY, env=env)
    assert list(home.iterdir()) == []


# --- what it will cost, said at once --------------------------------------------------------------


def said(home: Path, tmp_path: Path, config: str, *words: str) -> str:
    memory = tmp_path / "memory"
    memory.mkdir()
    (memory / "config.toml").write_text(config)
    env = {"XDG_CONFIG_HOME": str(home.parent), "OPTCHAT_HOME": str(memory)}
    done = CliRunner().invoke(main, ["install", *words], env=env)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize(
    "config, words",
    [
        ("", ["OpenCode's small_model", "400 calls and 1,500,000 tokens a day", "optchat spend"]),
        ('[compactor]\nsmall_model = "p/m"\n', ["OpenCode's p/m", "400 calls"]),
        ("[compactor.caps]\nday_calls = 0\nday_tokens = 0\n", ["without a cap for a day"]),
        (
            '[compactor]\nmodel = "openai"\nurl = "http://h/v1"\nmodel_name = "m-1"\n',
            ["m-1 at http://h/v1", "400 calls"],
        ),
        ('[compactor]\nmodel = "deterministic"\n', ["cost nothing"]),
    ],
)
def test_installing_says_which_model_is_used_and_what_it_may_cost(
    home: Path, tmp_path: Path, config: str, words: list[str]
) -> None:
    """§14: nobody is surprised by a bill."""
    told = said(home, tmp_path, config)
    for word in words:
        assert word in told


def test_programs_are_told_the_model_and_all_caps(home: Path, tmp_path: Path) -> None:
    """§14."""
    told = json.loads(said(home, tmp_path, "", "--json"))
    assert told["model"]["kind"] == "host"
    assert told["model"]["caps"]["day_calls"] == 400
    assert told["model"]["caps"]["turn_tokens"] == 250_000
