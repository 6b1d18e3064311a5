"""Fail when a tracked file holds what only this machine or its network knows.

Looked for: the path of this checkout and of the home folder, names of package registries, and
download addresses in package-lock.json. Untracked files that git does not ignore count as tracked,
so that a mistake shows before the commit.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Put together from parts, so that this file passes its own check.
REGISTRY_HOSTS = tuple(
    ".".join(parts)
    for parts in (
        ("registry", "npmjs", "org"),
        ("registry", "yarnpkg", "com"),
        ("files", "pythonhosted", "org"),
        ("pypi", "org"),
        ("pypi", "python", "org"),
        ("deb", "debian", "org"),
        ("proxy", "golang", "org"),
    )
)

# A home folder this short would be found in ordinary text, as `/` or `/root` are.
LOCAL_PATH_LENGTH_MIN = 6


def main() -> int:
    needles = dict.fromkeys(REGISTRY_HOSTS, "names a package registry")
    for path in {ROOT, Path.home()}:
        if len(str(path)) >= LOCAL_PATH_LENGTH_MIN:
            needles[str(path)] = "holds a path of this machine"
    # Not inside a longer name or path: `/srv/x` is not in `/srv/xyz`.
    patterns = {
        re.compile(rf"(?<![\w.-]){re.escape(needle)}(?![\w-])".encode()): fault
        for needle, fault in needles.items()
    }

    faults: list[str] = []
    for name in _files():
        path = ROOT / name
        if path.is_symlink() or not path.is_file():
            continue
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            faults += [
                f"{name}:{number}: {fault}"
                for pattern, fault in patterns.items()
                if pattern.search(line)
            ]
            if path.name == "package-lock.json" and re.search(rb'"resolved"\s*:', line):
                faults.append(f"{name}:{number}: holds a download address")

    for fault in faults:
        print(fault)
    return 1 if faults else 0


def _files() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return sorted({name.decode() for name in listed.stdout.split(b"\0") if name})


if __name__ == "__main__":
    sys.exit(main())
