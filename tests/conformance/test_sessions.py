"""Projects, scopes, sessions and generations (§3, §11, §12)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from optchat.core.records import Generation
from optchat.core.scopes import Project, Scope
from optchat.core.tree import SessionTree
from optchat.errors import Conflict
from optchat.refs import ProjectId, ScopeId, SessionId


def a_project(project_id: str, host_key: str = "key") -> Project:
    return Project(
        project_id=ProjectId(project_id), host="opencode", host_key=host_key, directory="/x"
    )


def test_a_project_is_found_by_host_key_and_by_id(world):
    project = a_project("p1")
    world.write(lambda tx: tx.sessions.put_project(project))
    assert world.read(lambda tx: tx.sessions.project("opencode", "key")) == project
    assert world.read(lambda tx: tx.sessions.project("other", "key")) is None


def test_putting_a_project_again_replaces_it(world):
    moved = replace(a_project("p1"), directory="/elsewhere", host_key="other")
    world.write(lambda tx: tx.sessions.put_project(a_project("p1")))
    world.write(lambda tx: tx.sessions.put_project(moved))
    assert world.read(lambda tx: tx.sessions.projects()) == (moved,)


def test_two_projects_cannot_have_one_host_key(world):
    world.write(lambda tx: tx.sessions.put_project(a_project("p1")))
    with pytest.raises(Conflict):
        world.write(lambda tx: tx.sessions.put_project(a_project("p2")))
    assert len(world.read(lambda tx: tx.sessions.projects())) == 1


def test_scopes_come_by_id(world):
    for name in ("project:b", "isolated:c", "profile:a"):
        world.scope(ScopeId(name))
    found = world.read(lambda tx: tx.sessions.scopes())
    assert [s.scope_id for s in found] == ["isolated:c", "profile:a", "project:b"]
    assert world.read(lambda tx: tx.sessions.scope(ScopeId("project:x"))) is None


def test_a_scopes_counters_never_go_back_and_the_rest_is_replaced(world):
    scope = Scope(scope_id=world.scope_id, name="old", publications=3, sessions=2)
    world.write(lambda tx: tx.sessions.put_scope(scope))
    stale = replace(scope, name="new", retention_epoch=2, publications=1, sessions=5)
    world.write(lambda tx: tx.sessions.put_scope(stale))
    expected = replace(stale, publications=3)
    assert world.read(lambda tx: tx.sessions.scope(world.scope_id)) == expected


def test_a_session_is_found_by_id_host_and_number(world):
    made = world.a_session(
        "a",
        number=12,
        parent_host_session="p",
        archive_changes=(3, 5, 9),
        sharing="isolated",
        disabled="why",
    )
    world.write(lambda tx: tx.sessions.put_session(made))
    assert world.read(lambda tx: tx.sessions.session(SessionId("a"))) == made
    assert world.read(lambda tx: tx.sessions.session_of_host("opencode", "host-a")) == made
    assert world.read(lambda tx: tx.sessions.session_numbered(world.scope_id, 12)) == made
    assert world.read(lambda tx: tx.sessions.session_numbered(world.scope_id, 1)) is None
    assert world.read(lambda tx: tx.sessions.session_numbered(ScopeId("other"), 12)) is None


def test_a_scope_knows_its_sessions_by_their_hosts_ids_and_no_others(world):
    made = world.a_session("a", number=3)
    other = world.a_session("b", scope_id=ScopeId("project:other"))
    for session in (made, other):
        world.write(lambda tx, s=session: tx.sessions.put_session(s))

    def called(scope_id, name):
        return world.read(lambda tx: tx.sessions.session_called(ScopeId(scope_id), name))

    assert called(world.scope_id, "host-a") == made
    assert called(world.scope_id, "host-b") is None
    assert called(world.scope_id, "a") is None
    assert called("project:other", "host-b") == other
    moved = replace(made, scope_id=ScopeId("project:other"), number=9)
    world.write(lambda tx: tx.sessions.put_session(moved))
    assert called(world.scope_id, "host-a") == replace(moved, scope_id=world.scope_id, number=3)
    assert called("project:other", "host-a") == moved


def test_sessions_of_a_scope_come_by_number(world):
    for name, number in (("a", 3), ("b", 1), ("c", 2)):
        made = world.a_session(name, number=number)
        world.write(lambda tx, made=made: tx.sessions.put_session(made))
    found = world.read(lambda tx: tx.sessions.sessions(world.scope_id))
    assert [s.session_id for s in found] == ["b", "c", "a"]


@pytest.mark.parametrize("clash", [{"host_session": "host-a"}, {"number": 1}])
def test_host_session_and_number_are_unique(world, clash):
    world.write(lambda tx: tx.sessions.put_session(world.a_session("a")))
    other = replace(world.a_session("b", number=2), **clash)
    with pytest.raises(Conflict):
        world.write(lambda tx: tx.sessions.put_session(other))
    assert world.read(lambda tx: tx.sessions.session(SessionId("b"))) is None


def test_the_same_number_in_another_scope_is_another_session(world):
    world.write(lambda tx: tx.sessions.put_session(world.a_session("a")))
    other = world.a_session("b", scope_id=ScopeId("project:other"))
    world.write(lambda tx: tx.sessions.put_session(other))
    assert world.read(lambda tx: tx.sessions.session_numbered(other.scope_id, 1)) == other


def test_a_session_can_move_to_another_scope(world):
    made = world.a_session("a")
    moved = replace(made, scope_id=ScopeId("profile:x"), number=7)
    world.write(lambda tx: tx.sessions.put_session(made))
    world.write(lambda tx: tx.sessions.put_session(moved))
    assert world.read(lambda tx: tx.sessions.sessions(made.scope_id)) == ()
    assert world.read(lambda tx: tx.sessions.sessions(moved.scope_id)) == (moved,)


def test_a_scope_knows_a_session_that_has_left_it_by_its_number_until_it_forgets_it(world):
    """§11: what it published there keeps its name, and its number is given to nobody else."""
    made = world.a_session("a")
    moved = replace(made, scope_id=ScopeId("profile:x"), number=7)
    world.write(lambda tx: tx.sessions.put_session(made))
    world.write(lambda tx: tx.sessions.put_session(moved))
    for find in (
        lambda tx: tx.sessions.session_in(made.scope_id, made.session_id),
        lambda tx: tx.sessions.session_numbered(made.scope_id, 1),
    ):
        assert world.read(find) == made
    assert world.read(lambda tx: tx.sessions.session(made.session_id)) == moved
    assert world.read(lambda tx: tx.sessions.session_of_host("opencode", "host-a")) == moved
    assert world.read(lambda tx: tx.sessions.scopes_of(made.session_id)) == (
        "profile:x",
        "project:p1",
    )
    with pytest.raises(Conflict):
        world.write(lambda tx: tx.sessions.put_session(world.a_session("b")))
    world.write(lambda tx: tx.sessions.leave_scope(made.scope_id, made.session_id))
    assert world.read(lambda tx: tx.sessions.session_numbered(made.scope_id, 1)) is None
    assert world.read(lambda tx: tx.sessions.session_in(made.scope_id, made.session_id)) is None
    assert world.read(lambda tx: tx.sessions.session_numbered(moved.scope_id, 7)) == moved


def test_the_children_of_a_session_are_those_that_name_it_as_their_parent(world):
    for name, number, parent, created_ms in (
        ("a", 1, None, 1),
        ("b", 2, "host-a", 9),
        ("c", 3, "host-a", 5),
        ("d", 4, "host-b", 6),
    ):
        made = world.a_session(
            name, number=number, parent_host_session=parent, created_ms=created_ms
        )
        world.write(lambda tx, made=made: tx.sessions.put_session(made))
    found = world.read(lambda tx: tx.sessions.children("opencode", "host-a"))
    assert [s.session_id for s in found] == ["c", "b"]
    assert world.read(lambda tx: tx.sessions.children("other", "host-a")) == ()


def test_a_generation_keeps_its_base(world):
    made = Generation(
        session_id=SessionId("a"),
        number=1,
        base=SessionTree(SessionId("b"), 4),
        inherited=3,
        length=3,
    )
    world.write(lambda tx: tx.sessions.put_generation(made))
    assert world.read(lambda tx: tx.sessions.generation(SessionId("a"), 1)) == made
    assert world.read(lambda tx: tx.sessions.generation(SessionId("a"), 0)) is None


def test_a_generations_length_never_goes_back(world):
    tree = world.session("a")
    world.seal(tree, "zero", "one")
    stale = Generation(session_id=tree.session_id, number=0)
    world.write(lambda tx: tx.sessions.put_generation(stale))
    found = world.read(lambda tx: tx.sessions.generation(tree.session_id, 0))
    assert found is not None
    assert found.length == 2
