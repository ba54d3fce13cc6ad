"""Target Python and platform of a stack: compatible wheels, and the options for uv."""

from __future__ import annotations

import platform as machine
import re
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags, mac_platforms, platform_tags, sys_tags

from workbench.core.errors import ConfigError

OLDEST_MINOR = 8
_PYTHON = re.compile(r"3\.(\d{1,2})(\.\d{1,2})?")
_GLIBC = re.compile(r"(x86_64|aarch64)-manylinux_2_(\d{1,2})")
# glibc versions of the three legacy manylinux names.
_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
ALLOWED = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28", "windows", "aarch64-apple-darwin")


@dataclass(frozen=True)
class Target:
    """Python and platform; `ranks` maps compatible wheel tags to ranks, best first (0).

    `uv_platform` is uv's name of another platform; null for this machine.
    """

    python: str
    platform: str
    uv_platform: str | None
    ranks: Mapping[Tag, int] = field(repr=False)

    def rank_tags(self, tags: Iterable[Tag]) -> int | None:
        """Best rank of the tags of a wheel, 0 is best; null if incompatible."""
        return min((self.ranks[tag] for tag in tags if tag in self.ranks), default=None)

    def allows_python(self, requires_python: str | None) -> bool:
        """Whether Requires-Python allows this Python; an invalid specifier allows all versions."""
        if not requires_python:
            return True
        try:
            return SpecifierSet(requires_python).contains(self.python, prereleases=True)
        except InvalidSpecifier:
            return True

    def list_uv_options(self) -> list[str]:
        """Options of `uv pip compile` for this target."""
        options = ["--python", sys.executable, "--python-version", self.python]
        return [*options, "--python-platform", self.uv_platform] if self.uv_platform else options


def this_python_version() -> str:
    """Version of the running interpreter, such as 3.11.7."""
    return machine.python_version().split("+")[0]


def this_platform() -> str:
    """Platform name of this machine without system versions, such as linux_x86_64 or macosx_arm64."""
    parts = re.split(r"[-.]", sysconfig.get_platform())
    system, processor = parts[0], parts[-1]
    if system == "linux" and any(tag.startswith("musllinux") for tag in platform_tags()):
        system = "musllinux"
    return f"{system}_{processor}" if processor != system else system


def build_target(python: str | None = None, platform: str | None = None) -> Target:
    """Target of this interpreter and machine, or of other ones.

    `python`: Version such as "3.12" or "3.12.4"; by default that of this interpreter.
    `platform`: uv's name of another platform, such as "x86_64-manylinux_2_28", "windows" or "aarch64-apple-darwin".

    >>> other = build_target("3.12", "x86_64-manylinux_2_28")
    >>> other.platform, other.rank_tags([Tag("cp312", "cp312", "manylinux_2_17_x86_64")]) is not None
    ('manylinux_2_28_x86_64', True)
    """
    version = _check_python(python)
    if platform is None:
        # Compatible tags are read from the running interpreter; others are assumed to be built alike.
        tags = list(sys_tags()) if version == this_python_version() else _list_tags(version, list(platform_tags()))
        return Target(version, this_platform(), None, _rank_tags(tags))
    name, platforms = _list_platforms(platform)
    return Target(version, name, platform, _rank_tags(_list_tags(version, platforms)))


def find_uv_platform(platform: str) -> str | None:
    """uv's name of a platform other than this machine's; null if unknown.

    >>> find_uv_platform("manylinux_2_28_x86_64"), find_uv_platform("win_amd64")
    ('x86_64-manylinux_2_28', 'windows')
    """
    if match := re.fullmatch(r"(manylinux_2_\d{1,2})_(x86_64|aarch64)", platform):
        return f"{match[2]}-{match[1]}"
    return {"win_amd64": "windows", "macosx_arm64": "aarch64-apple-darwin"}.get(platform)


def _check_python(version: str | None) -> str:
    if version is None:
        return this_python_version()
    match = _PYTHON.fullmatch(version)
    if match is None or int(match[1]) < OLDEST_MINOR:
        raise ConfigError(
            "not a version of Python",
            where="--python-version",
            found=version[:40],
            allowed=f"3.{OLDEST_MINOR} or newer",
        )
    # "3.11" on Python 3.11.7 means this interpreter, so no other Python is needed for environments.
    return this_python_version() if version == ".".join(this_python_version().split(".")[:2]) else version


def _list_platforms(platform: str) -> tuple[str, list[str]]:
    if match := _GLIBC.fullmatch(platform):
        return f"manylinux_2_{match[2]}_{match[1]}", _list_manylinux_tags(match[1], int(match[2]))
    if platform == "windows":
        return "win_amd64", ["win_amd64"]
    if platform == "aarch64-apple-darwin":
        return "macosx_arm64", list(mac_platforms((13, 0), "arm64"))
    raise ConfigError("unknown platform", where="--platform", found=platform[:60], allowed=ALLOWED)


def _list_manylinux_tags(processor: str, newest: int) -> list[str]:
    oldest = 5 if processor == "x86_64" else 17
    names = []
    for minor in range(newest, oldest - 1, -1):
        names.append(f"manylinux_2_{minor}_{processor}")
        if old := _OLD_NAMES.get(minor):
            names.append(f"{old}_{processor}")
    return [*names, f"linux_{processor}"]


def _list_tags(python: str, platforms: list[str]) -> list[Tag]:
    major, minor = (int(part) for part in python.split(".")[:2])
    interpreter = f"cp{major}{minor}"
    tags = cpython_tags((major, minor), platforms=platforms)
    return [*tags, *compatible_tags((major, minor), interpreter=interpreter, platforms=platforms)]


def _rank_tags(tags: Iterable[Tag]) -> dict[Tag, int]:
    ranks: dict[Tag, int] = {}
    for rank, tag in enumerate(tags):
        ranks.setdefault(tag, rank)
    return ranks
