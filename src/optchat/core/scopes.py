"""Sharing scopes: which sessions share memory, decided by configuration alone (§11)."""

from __future__ import annotations

from dataclasses import dataclass

from optchat.refs import ProjectId, ScopeId, SessionId


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A sharing boundary with its policy revision and retention epoch.

    ``policy_revision`` moves when membership rules change, ``retention_epoch`` when something
    visible was removed; either makes older snapshots invalid (§12).
    """

    scope_id: ScopeId
    name: str
    policy_revision: int = 1
    retention_epoch: int = 1
    publications: int = 0
    sessions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project under an opaque id of ours, mapped from what the host knows it by."""

    project_id: ProjectId
    host: str
    host_key: str
    directory: str


def project_scope(project_id: ProjectId) -> ScopeId:
    """The default scope: one stable project."""
    return ScopeId(f"project:{project_id}")


def profile_scope(profile: str) -> ScopeId:
    """A named scope over several projects."""
    return ScopeId(f"profile:{profile}")


def isolated_scope(session_id: SessionId) -> ScopeId:
    """A scope that holds one session, publishes nothing and is read by nobody else."""
    return ScopeId(f"isolated:{session_id}")


def is_isolated(scope_id: ScopeId) -> bool:
    return scope_id.startswith("isolated:")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingRules:
    """The configured rules, in the order in which they are tried.

    ``isolated`` and the members of ``profiles`` name projects by directory; a directory rule holds
    for everything below it, the longest match wins.
    """

    default: str = "project"
    isolated: tuple[str, ...] = ()
    profiles: tuple[tuple[str, tuple[str, ...]], ...] = ()


def scope_of(
    rules: SharingRules,
    *,
    session_id: SessionId,
    project_id: ProjectId,
    directory: str,
    chosen: str | None = None,
) -> ScopeId:
    """The one scope of a session, by configuration and where it runs.

    ``chosen`` is what a person decided for this session alone, in the words of ``default``; it goes
    before every rule.
    """
    candidates = [
        (len(path), isolated_scope(session_id))
        for path in rules.isolated
        if _within(directory, path)
    ]
    for name, members in rules.profiles:
        candidates += [
            (len(path), profile_scope(name)) for path in members if _within(directory, path)
        ]
    if candidates and chosen is None:
        return max(candidates, key=lambda c: c[0])[1]
    match chosen or rules.default:
        case "isolated":
            return isolated_scope(session_id)
        case "project":
            return project_scope(project_id)
        case profile:
            return profile_scope(profile)


def _within(directory: str, path: str) -> bool:
    root = path.rstrip("/")
    return directory == root or directory.startswith(root + "/")
