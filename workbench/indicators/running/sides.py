"""The sides of a session: stacks with environments of their own, and the control beside the baseline."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ConfigError, RunFailedError
from workbench.indicators.archive import CONTROL, Arm

if TYPE_CHECKING:
    from workbench.indicators.stacks.model import Stack

_PROBE = (
    "import importlib.metadata as m, json, platform, re, sys;"
    "print(json.dumps([platform.python_version(), sys.prefix,"
    " sorted({(re.sub('[-_.]+', '-', str(d.metadata['Name']).lower()), d.version)"
    " for d in m.distributions() if d.metadata['Name']})]))"
)
_PROBE_TIMEOUT_S = 60


@dataclass(frozen=True)
class Side:
    """An arm, with the interpreter that its runs are made with; `packages` has (name, version, hashes) for its lock."""

    arm: Arm
    python: str
    hashes: Mapping[str, tuple[str, ...]]


def of_stacks(
    stacks: Sequence[Stack],
    baseline: str | None = None,
    *,
    max_download_bytes: int,
    offline: bool = False,
    root: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Side]:
    """Install all stacks, and the baseline once more as the control; the baseline comes first, the control last.

    Raises
    ------
    ConfigError
        No stack at all, no such baseline, a name twice, or a download above the limit.
    RunFailedError
        A stack cannot be installed.
    """
    from workbench.indicators.stacks.environments import install_all

    by_name = {stack.name: stack for stack in stacks}
    first = by_name[chosen(baseline, list(by_name))]
    wanted = [(first, 0), *((stack, 0) for stack in stacks if stack is not first), (first, 1)]
    made = install_all(wanted, root, offline=offline, max_download_bytes=max_download_bytes, progress=progress)
    sides = []
    for (stack, copy), environment in zip(wanted, made, strict=True):
        arm = Arm(
            name=CONTROL if copy else stack.name,
            stack=stack.name,
            stack_key=stack.key,
            copy_number=copy,
            python=environment.python_version,
            packages=environment.installed,
            lock_sha256=stack.lock_sha256,
            notes={"record_sha256": environment.record_sha256},
        )
        hashes = {package.name: package.hashes for package in stack.packages}
        sides.append(Side(arm, str(environment.python), hashes))
    return _told_apart(sides)


def of_pythons(pythons: Mapping[str, str], baseline: str | None = None) -> list[Side]:
    """Environments that are there already, by name; the control runs the baseline's own once more.

    Nothing is installed and no hash is known: what is in them is asked, and stands for a lock.

    Raises
    ------
    ConfigError
        No environment at all, no such baseline, or a path where no Python is.
    """
    first = chosen(baseline, list(pythons))
    names = [first, *(name for name in pythons if name != first)]
    sides = [_of_python(name, pythons[name]) for name in names]
    note = {"environment": "the baseline's own, not a copy"}
    control = sides[0].arm.model_copy(update={"name": CONTROL, "copy_number": 1, "notes": note})
    return _told_apart([*sides, Side(control, sides[0].python, {})])


def chosen(baseline: str | None, names: list[str]) -> str:
    """The baseline's name: the one that is asked for, else the first.

    Raises
    ------
    ConfigError
        There is no stack, or none of this name.
    """
    if not names:
        raise ConfigError("no stack to measure", do="give --stacks FILE, --stack numpy==2.2.6, or --python NAME=PATH")
    if baseline is not None and baseline not in names:
        raise ConfigError("no such stack", where="--baseline", found=baseline[:200], allowed=names)
    return names[0] if baseline is None else baseline


def pythons_of(texts: Iterable[str]) -> dict[str, str]:
    """`NAME=PATH` texts as a mapping.

    Raises
    ------
    ConfigError
        A text is not of this form, or a name comes twice.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not name.strip() or not path.strip():
            raise ConfigError("not an environment", where="--python", found=text[:200], allowed="NAME=PATH")
        if name.strip() in found:
            raise ConfigError("two environments of one name", where="--python", found=name.strip()[:200])
        found[name.strip()] = path.strip()
    return found


def _of_python(name: str, path: str) -> Side:
    python = Path(path).expanduser()
    if python.is_dir():
        python = python / "bin" / "python"
    # Made absolute but not resolved: a virtual environment's Python is a link, and is found by the link's place.
    version, _, listed = _probed(name, str(python.absolute()))
    packages = {str(one[0]): str(one[1]) for one in listed}
    lock = "".join(f"{package}=={number}\n" for package, number in packages.items())
    key = sha256(f"{lock}\0{version}".encode()).hexdigest()
    arm = Arm(name=name, stack=name, stack_key=key, python=version, packages=packages)
    return Side(arm, str(python.absolute()), {})


def _probed(name: str, python: str) -> tuple[str, str, list[Any]]:
    try:
        done = subprocess.run(  # noqa: S603
            [python, "-I", "-B", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        version, prefix, listed = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        told = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            "not a Python that can be run", where=f"--python {name}={python}"[:300], found=told, allowed="3.8 or newer"
        ) from None
    return str(version), str(prefix), list(listed)


def _told_apart(sides: list[Side]) -> list[Side]:
    names = [side.arm.name for side in sides]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            "two sides of one name", found=twice, do=f"rename one; {CONTROL!r} is the baseline's second copy"
        )
    return sides


def check_unchanged(sides: Iterable[Side], arms: Iterable[Arm]) -> None:
    """Are these still the environments that a session was begun with?

    Raises
    ------
    RunFailedError
        One holds other packages than at the beginning, or is missing.
    """
    found = {side.arm.name: side.arm for side in sides}
    for arm in arms:
        now = found.get(arm.name)
        if now is None or (now.packages, now.python, now.stack_key) != (arm.packages, arm.python, arm.stack_key):
            raise RunFailedError(
                "an environment is not what it was when the session began",
                where=arm.name,
                do="begin a new session: figures of two environments must not be mixed",
            )
