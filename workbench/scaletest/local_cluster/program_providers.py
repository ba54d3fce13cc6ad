"""Providers of control-plane programs: kwokctl, a folder, our own build or conda; the doctor's check."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from workbench.cli.doctor import Check
from workbench.core.errors import ConfigError, MissingToolError, WorkbenchError
from workbench.scaletest.local_cluster import program_builds

Provider = Literal["kwokctl", "folder", "built", "path"]
VARIABLE = "WORKBENCH_CLUSTER_BINARIES"
KUBE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
KWOK = ("kwok", "kwokctl")
KAI = ("scheduler", "podgrouper", "binder", "podgroupcontroller", "queuecontroller")
BUILD = "workbench scaletest cluster build"


@dataclass(frozen=True)
class Binaries:
    """Programs to start a cluster with.

    `provider`: `kwokctl`: on PATH, and it brings its own control plane; `folder`: given; `built`: by `cluster build`;
    `path`: Kubernetes and etcd on PATH, such as conda installs them.
    `programs`: Path of each that is known, by its name; for `kwokctl` there is that one only.
    `kai`: Folder with KAI's programs, and `crds/` in it; null where there is none.
    """

    provider: Provider
    programs: Mapping[str, Path]
    kai: Path | None = None

    @property
    def kubectl(self) -> Path | None:
        """Kubernetes' own client, where there is one: for submitting the way others do."""
        beside = self.programs.get("kubectl")
        if beside is not None and _is_program(beside):
            return beside
        path = shutil.which("kubectl")
        return Path(path) if path else None

    def require_kai(self) -> Path:
        """The folder of KAI's programs."""
        if self.kai is None:
            raise MissingToolError(
                "there are no programs of KAI",
                where=f"provider {self.provider}",
                allowed=f"a folder kai/ with {', '.join(KAI)} and crds/",
                do=BUILD,
            )
        return self.kai

    def require_scheduler(self) -> Path:
        """The kube-scheduler's program, for a second one."""
        program = self.programs.get("kube-scheduler")
        if program is None:
            raise MissingToolError(
                "there is no program of a second kube-scheduler",
                where=f"provider {self.provider}",
                do=f"{BUILD}, then up with --provider built",
            )
        return program

    def require_kueue(self) -> Path:
        """The folder of Kueue's program and manifests: our own build, whatever the provider."""
        folder = program_builds.build_folder("kueue")
        if not _is_program(folder / "kueue"):
            raise MissingToolError(
                "there is no program of Kueue", do=f"{BUILD} --only kueue (once, ten minutes on two cores)"
            )
        return folder

    @property
    def kueue_version(self) -> str | None:
        """Version of Kueue, where its build left one."""
        try:
            return (self.require_kueue() / "VERSION").read_text(encoding="utf-8").strip()[:40]
        except OSError:
            return None

    @property
    def kai_version(self) -> str | None:
        """Version of KAI, where its build left one."""
        try:
            return (self.require_kai() / "VERSION").read_text(encoding="utf-8").strip()[:40]
        except OSError:
            return None

    @property
    def kwokctl(self) -> Path:
        """The program that creates clusters."""
        return self.programs["kwokctl"]


def find_binaries(folder: Path | None = None, provider: Provider | None = None) -> Binaries:
    """The first provider that is there, or the one that is named.

    `folder`: A folder with the programs; $WORKBENCH_CLUSTER_BINARIES without it. Given, it is used or refused.
    """
    named_folder = folder or (Path(value) if (value := os.environ.get(VARIABLE)) else None)
    if named_folder is not None and provider in (None, "folder"):
        return _binaries_in_folder(named_folder.expanduser().absolute())
    finders = {"kwokctl": _kwokctl_binaries, "built": _binaries_of_build, "path": _binaries_on_path}
    for name, finder in finders.items():
        if provider in (None, name) and (binaries := finder()) is not None:
            return binaries
    if provider is not None:
        raise MissingToolError("this provider is not here", where="--provider", found=provider, do=BUILD)
    raise MissingToolError(
        "there is no control plane to start",
        allowed="kwokctl on PATH, a folder of binaries, or built ones",
        do=f"{BUILD} (once, up to 22 minutes on two cores; needs Go {program_builds.GO} or newer)",
    )


def _binaries_in_folder(folder: Path) -> Binaries:
    programs = {name: folder / name for name in (*KUBE, *KWOK)}
    if missing := [name for name, path in programs.items() if not _is_program(path)]:
        raise ConfigError(
            "the folder of binaries lacks programs",
            where=folder,
            found=f"no {', '.join(missing)}",
            do=f"{BUILD}, or leave --binaries and ${VARIABLE} out",
        )
    return Binaries("folder", programs | {"kubectl": folder / "kubectl"}, _find_kai_programs(folder / "kai"))


def _kwokctl_binaries() -> Binaries | None:
    kwokctl = shutil.which("kwokctl")
    return (
        Binaries("kwokctl", {"kwokctl": Path(kwokctl)}, _find_kai_programs(program_builds.build_folder("kai")))
        if kwokctl
        else None
    )


def _binaries_of_build() -> Binaries | None:
    programs = {name: program_builds.build_folder("kube") / name for name in KUBE}
    programs |= {name: program_builds.build_folder("kwok") / name for name in KWOK}
    if all(map(_is_program, programs.values())):
        programs["kubectl"] = program_builds.build_folder("kube") / "kubectl"
        return Binaries("built", programs, _find_kai_programs(program_builds.build_folder("kai")))
    return None


def _binaries_on_path() -> Binaries | None:
    """Conda's kubernetes-server and etcd bring no kwok: that one is built, which takes a minute instead of ten."""
    programs = {name: Path(path) for name in KUBE if (path := shutil.which(name))}
    programs |= {name: program_builds.build_folder("kwok") / name for name in KWOK}
    if len(programs) == len(KUBE) + len(KWOK) and all(map(_is_program, programs.values())):
        return Binaries("path", programs, _find_kai_programs(program_builds.build_folder("kai")))
    return None


def _find_kai_programs(folder: Path) -> Path | None:
    is_complete = all(_is_program(folder / name) for name in KAI) and any((folder / "crds").glob("*.yaml"))
    return folder if is_complete else None


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def checks() -> list[Check]:
    """One check: the provider that was found, or what is missing to build one."""
    from workbench.scaletest.local_cluster import program_builds

    subject = "control plane"
    try:
        binaries = find_binaries()
    except WorkbenchError as error:
        mend = BUILD
        try:
            program_builds.find_go()
        except WorkbenchError as no_go:
            mend = f"{no_go.facts['do']}; then {BUILD}"
        return [Check(subject, error.what, "cluster", "missing", mend)]
    kai = (binaries.kai_version or "of no known version") if binaries.kai else None
    return [Check(subject, f"provider {binaries.provider}, {f'with KAI {kai}' if kai else 'without KAI'}", "cluster")]
