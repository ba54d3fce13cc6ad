"""Sessions, stacks and pods for the tests: real scripts run by the real runner, as processes of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from workbench.indicators.contract.indicator import Case, Indicator, check, parameter, result
from workbench.indicators.kubernetes.job_manifests import ClusterOptions, build_pod_files, cluster_options
from workbench.indicators.kubernetes.job_submission import plan_session
from workbench.indicators.kubernetes.pod import INDEX_VARIABLE, KEY_VARIABLE
from workbench.indicators.kubernetes.result_collection import collect_results
from workbench.indicators.measurement.session_config import session_config
from workbench.indicators.stacks.stack_sets import Package, Stack, build_stack
from workbench.indicators.store.archive import Result, Session, read_results

KEY = "0f" * 32
PYTHON = f"3.{sys.version_info.minor}"
HASH = "sha256:" + 64 * "a"
GOOD = """
import json, os, sys
n = int(os.environ["PI_N"])
print("a note", file=sys.stderr)
print(json.dumps({"name": "Good", "framework": "python", "@parameters": {"n": n},
                  "@result": {"elapsed_ms": 1.5}, "@checks": {"total": n}}))
"""


class Good(Indicator):
    """A script that does what it should."""

    script: ClassVar[str] = GOOD
    n: int = parameter(3, ge=1)
    elapsed_ms: float = result(unit="ms", better="lower")
    total: int = check()


def indicator(name: str, script: str, **files: str) -> type[Indicator]:
    """An indicator of one result with this script."""
    body = {
        "__module__": __name__,
        "__doc__": f"{name}.",
        "__annotations__": {"script": ClassVar[str], "files": ClassVar[dict[str, str]], "elapsed_ms": float},
        "script": script,
        "files": files,
        "elapsed_ms": result(unit="ms", better="lower"),
    }
    made: type[Indicator] = type(name, (Indicator,), body)
    return made


def stack(name: str = "six", version: str = "1.17.0", **changed: Any) -> Stack:
    package = Package(name=name, version=version, hashes=(HASH,), download_bytes=11_000)
    return build_stack(
        [package], **{"python": PYTHON, "platform": "linux_x86_64", "name": f"{name}-{version}"} | changed
    )


STACKS = (stack(), stack(version="1.16.0"))


def planned(
    folder: Path,
    cases: Sequence[Case] = (Case.from_parameters(Good),),
    *,
    stacks: Sequence[Stack] = STACKS,
    options: ClusterOptions | None = None,
    **config: Any,
) -> Session:
    """A session in this folder, signed with KEY."""
    (folder / "kubernetes").mkdir(parents=True, exist_ok=True)
    (folder / "kubernetes" / "key").write_text(KEY + "\n")
    settings = {"rounds": (2,), "seed": 7, "memory_bytes": 1 << 30} | config
    return plan_session(
        folder, "20260102T030405Z-a1b2c3", session_config(**settings), stacks, cases, options or cluster_options()
    )


class Pod:
    """The folders of a pod, with environments of this interpreter, and the runner as a process."""

    def __init__(
        self, root: Path, session: Session, cases: Sequence[Case], *, stacks: Sequence[Stack] = STACKS, **plan: Any
    ) -> None:
        self.bundle, self.environments, self.scratch = (root / name for name in ("bundle", "environments", "scratch"))
        for folder in (self.bundle, self.environments, self.scratch):
            folder.mkdir(parents=True)
        files = build_pod_files(session, stacks, cases, cluster_options(), rounds=range(max(session.looks)))
        if plan:
            files["plan.json"] = json.dumps(json.loads(files["plan.json"]) | plan)
        for name, text in files.items():
            (self.bundle / name).write_text(text)
        for number in range(len(session.arms)):
            venv.EnvBuilder(symlinks=True, with_pip=False).create(self.environments / str(number))

    def round(
        self, index: int, *, key: str = KEY, user: int | None = None, python: str = sys.executable
    ) -> subprocess.CompletedProcess[bytes]:
        """One round, made as in the pod of this index; stdout and stderr apart."""
        command = [python, "-s", "-B", "pod.py", *map(str, (self.bundle, self.environments, self.scratch))]
        environment = {INDEX_VARIABLE: str(index), KEY_VARIABLE: key, "PATH": os.defpath, "HOME": str(self.scratch)}
        return subprocess.run(
            command, cwd=self.bundle, env=environment, capture_output=True, timeout=250, check=False, user=user
        )


def collected(folder: Path, cases: Sequence[Case], *, rounds: int = 1, **plan: Any) -> tuple[Session, list[Result]]:
    """One round of these cases, made by the runner and collected: the session, and its results."""
    session = planned(folder, cases, rounds=(rounds,), **plan)
    log = log_of(Pod(folder / "pod", session, cases, stacks=plan.get("stacks", STACKS)).round(0))
    found = collect_results(folder, cases, [[log]], key=KEY)
    assert list((folder / "pod" / "scratch").iterdir()) == []
    return found.session, [one for _, _, one in read_results(folder, found.session)]


def log_of(done: subprocess.CompletedProcess[bytes]) -> bytes:
    """What a cluster would show of it: the runner says nothing on stderr."""
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout
