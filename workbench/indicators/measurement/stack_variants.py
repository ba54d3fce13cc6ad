"""Variants of a session: what its arms run with on this machine, and the control beside the baseline.

- Stack: a lock, that is packages with versions and hashes that uv solved for one Python and platform.
- Variation: a combination of a stack matrix: a stack or an existing environment, with threads and variables.
- Environment: a stack that is installed on this machine, in a folder of its own.
- Arm: what is compared, as session.json records it: name, stack, packages, Python's version, threads.
- Variant: an arm with what its runs need here: the path of its interpreter, and variables.
- Control: the arm that is the baseline once more, from a second environment; its difference is measurement error.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from workbench.core.errors import ConfigError, RunFailedError
from workbench.indicators.stacks import stack_request, stack_sets, stack_solver, uv_tool
from workbench.indicators.stacks.environments import Environment, install_environments
from workbench.indicators.stacks.stack_sets import Stack, StackSet, Variation
from workbench.indicators.store.archive import CONTROL, Arm

_PROBE = (
    "import importlib.metadata as m, json, platform, re;"
    "print(json.dumps([platform.python_version(),"
    " sorted({(re.sub('[-_.]+', '-', str(d.metadata['Name']).lower()), d.version)"
    " for d in m.distributions() if d.metadata['Name']})]))"
)
_PROBE_TIMEOUT_S = 60
# Spaces, or commas, before a name; those in numpy>=1.24,<2, in brackets and after the @ before a URL belong to the
# requirement.
_SEPARATORS = re.compile(r"(?<![@\s])(?:\s+|\s*,\s*)(?=[A-Za-z])(?![^\[]*\])")


@dataclass(frozen=True)
class Variant:
    """An arm with what its runs need.

    `interpreter`: Path of its Python; empty where pods install it. `hashes`: Those of its lock, by package.
    `environment`: Variables of its runs alone.
    """

    arm: Arm
    interpreter: str
    hashes: Mapping[str, tuple[str, ...]]
    environment: Mapping[str, str] = field(default_factory=dict)


def install_variants(
    stacks: StackSet,
    baseline: str | None = None,
    *,
    max_download_bytes: int,
    offline: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> list[Variant]:
    """Install all locks of a set; a variant for each variation of a matrix, else for each stack.

    Combinations that differ only in threads or variables share an environment. The control has one of its own, with
    the baseline's threads and variables.
    """
    locks = {stack.key: stack for stack in stacks.stacks}
    variations = stacks.variations or [Variation(name=stack.name, stack=stack.key) for stack in stacks.stacks]
    by_name = {variation.name: variation for variation in variations}
    names = order_variants([variation.name for variation in variations], baseline)
    ordered = [(by_name[name], is_control) for name, is_control in names]
    # Copy 1 of an environment is the control's.
    wanted = list(dict.fromkeys((entry.stack, int(is_control)) for entry, is_control in ordered if entry.stack))
    installed = install_environments(
        [(locks[key], copy) for key, copy in wanted],
        offline=offline,
        max_download_bytes=max_download_bytes,
        progress=progress,
        indexes=stacks.indexes,
    )
    environments = dict(zip(wanted, installed, strict=True))
    return [
        _build_environment_variant(variation, is_control=is_control)
        if variation.stack is None
        else build_stack_variant(
            locks[variation.stack], environments[variation.stack, int(is_control)], variation, is_control=is_control
        )
        for variation, is_control in ordered
    ]


def order_variants(names: Sequence[str], baseline: str | None) -> list[tuple[str, bool]]:
    """Names of a session's variants, each with whether it is the control: the baseline first, its control last."""
    first = choose_baseline(baseline, list(names))
    if twice := sorted({name for name in (*names, CONTROL) if [*names, CONTROL].count(name) > 1}):
        raise ConfigError(
            "two variants of one name", found=twice, do=f"rename one; {CONTROL!r} is the baseline's second copy"
        )
    return [(first, False), *((name, False) for name in names if name != first), (first, True)]


def build_stack_variant(
    stack: Stack, environment: Environment | None = None, variation: Variation | None = None, *, is_control: bool
) -> Variant:
    """The variant of a stack as installed, or as its lock says; `variation` has its name, threads and variables."""
    variation = variation or Variation(name=stack.name, stack=stack.key)
    arm = Arm(
        name=CONTROL if is_control else variation.name,
        stack=variation.name,
        stack_key=variation.key or stack.key,
        copy_number=int(is_control),
        python=environment.python_version if environment else stack.python,
        packages=environment.installed if environment else stack.versions,
        lock_sha256=stack.lock_sha256,
        notes={"record_sha256": environment.record_sha256} if environment else {},
        factors=variation.factors,
        threads=variation.threads,
    )
    hashes = {package.name: package.hashes for package in stack.packages}
    return Variant(arm, str(environment.python) if environment else "", hashes, dict(variation.variables))


def build_python_variants(pythons: Mapping[str, str], baseline: str | None = None) -> list[Variant]:
    """Use existing environments, by name; the control is the baseline's own environment once more.

    Nothing is installed and no hashes are known: the list of installed packages stands for a lock.
    """
    names = order_variants(list(pythons), baseline)[:-1]
    variants = []
    for name, _ in names:
        # The variant of an existing environment, by the path of its interpreter or folder.
        interpreter = Path(pythons[name]).expanduser()
        if interpreter.is_dir():
            interpreter = interpreter / "bin" / "python"
        # Absolute but not resolved: a virtual environment's Python is a link, and its location defines the environment.
        version, listed = _probe_python(name, str(interpreter.absolute()))
        packages = {str(entry[0]): str(entry[1]) for entry in listed}
        lock = "".join(f"{package}=={number}\n" for package, number in packages.items())
        key = sha256(f"{lock}\0{version}".encode()).hexdigest()
        arm = Arm(name=name, stack=name, stack_key=key, python=version, packages=packages)
        variants.append(Variant(arm, str(interpreter.absolute()), {}))
    note = {"environment": "the baseline's own, not a copy"}
    control = variants[0].arm.model_copy(update={"name": CONTROL, "copy_number": 1, "notes": note})
    return [*variants, Variant(control, variants[0].interpreter, {})]


def choose_baseline(baseline: str | None, names: list[str]) -> str:
    """The baseline's name: the configured one, else the first."""
    if not names:
        raise ConfigError("no stack to measure", do="give --stacks FILE, --stack numpy==2.2.6, or --python NAME=PATH")
    if baseline is not None and baseline not in names:
        raise ConfigError("no such stack", where="--baseline", found=baseline[:200], allowed=names)
    return names[0] if baseline is None else baseline


def parse_pythons(texts: Iterable[str]) -> dict[str, str]:
    """Parse `NAME=PATH` texts."""
    paths: dict[str, str] = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not equals or not name.strip() or not path.strip():
            raise ConfigError("not an environment", where="--python", found=text[:200], allowed="NAME=PATH")
        if name.strip() in paths:
            raise ConfigError("two environments of one name", where="--python", found=name.strip()[:200])
        paths[name.strip()] = path.strip()
    return paths


def _probe_python(name: str, interpreter: str) -> tuple[str, list[Any]]:
    """Version, and packages as (name, version), as an interpreter tells them."""
    try:
        process = subprocess.run(  # noqa: S603
            [interpreter, "-I", "-B", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        version, listed = json.loads(process.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(
            "not a Python that runs", where=f"--python {name}={interpreter}"[:300], found=reason, allowed="3.8 or newer"
        ) from None
    return str(version), list(listed)


def check_environments(variants: Iterable[Variant], arms: Iterable[Arm]) -> None:
    """Check that the environments are still those that a session was started with."""
    by_name = {variant.arm.name: variant.arm for variant in variants}
    for arm in arms:
        now = by_name.get(arm.name)
        if now is None or (now.packages, now.python, now.stack_key) != (arm.packages, arm.python, arm.stack_key):
            raise RunFailedError(
                "an environment has changed since the session started",
                where=arm.name,
                do="start a new session: figures of different environments are not mixed",
            )


def solve_requirement_sets(
    texts: Sequence[str], max_download_bytes: int, progress: Callable[[int, int], None] | None = None
) -> StackSet:
    """Solve a stack for each text of requirements (`numpy==2.2.6 pandas==2.2.3`); names show how stacks differ."""
    stacks: list[Stack] = []
    names: dict[str, None] = {}
    for number, text in enumerate(texts):
        requirements = split_requirements(text)
        answer = stack_solver.solve_request(
            stack_request.build_stack_request(requirements=requirements, max_download_bytes=max_download_bytes)
        )
        if answer.rejected or not answer.stacks:
            reason = answer.rejected[0].reason.splitlines()[0] if answer.rejected else "no stack"
            raise ConfigError("a stack without a solution", where=f"--stack {text!r}"[:200], found=reason[:300])
        stacks += answer.stacks
        names |= dict.fromkeys(
            canonicalize_name(stack_request.parse_requirement(requirement, "--stack").name)
            for requirement in requirements
        )
        if progress is not None:
            progress(number + 1, len(texts))
    return build_stack_set(stack_sets.name_stacks(_check_different_stacks(stacks, texts), list(names)), texts)


def split_requirements(text: str) -> tuple[str, ...]:
    """The requirements of one text, with spaces or commas between them; one with a marker goes on to the text's end.

    A requirement by URL stays one, so that it is refused as such (`stack_request.parse_requirement`).

    >>> split_requirements("numpy == 2.2.6 pandas>=2.2,<3 scipy==1.15.3 ; python_version >= '3.9'")
    ('numpy == 2.2.6', 'pandas>=2.2,<3', "scipy==1.15.3 ; python_version >= '3.9'")
    """
    names, semicolon, marker = text.strip().partition(";")
    parts = _SEPARATORS.split(names.strip())
    return (*parts[:-1], f"{parts[-1]} ;{marker}") if semicolon else tuple(parts)


def build_stack_set(stacks: Sequence[Stack], requirements: Sequence[str]) -> StackSet:
    """Combine stacks to one set."""
    names = [stack.name for stack in stacks]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError("two stacks of one name", found=twice, do="give them different identifiers")
    return StackSet(
        requirements=tuple(text[:1000] for text in requirements),
        free=(),
        decision="grid",
        python=stacks[0].python,
        platform=stacks[0].platform,
        uv_version=uv_tool.read_uv_version(),
        stacks=tuple(_check_different_stacks(list(stacks), requirements)),
    )


def _check_different_stacks(stacks: list[Stack], texts: Sequence[str]) -> list[Stack]:
    """Refuse two equal locks; `texts` are the requirements that they come from."""
    keys = [stack.key for stack in stacks]
    for number, key in enumerate(keys):
        if key in keys[:number]:
            raise ConfigError(
                "two stacks are the same",
                found=[texts[keys.index(key)][:100], texts[number][:100]],
                do="omit one: the control already measures the baseline twice",
            )
    return stacks


def _build_environment_variant(variation: Variation, *, is_control: bool) -> Variant:
    """Variant of an existing environment; its control is the same environment once more."""
    variant = build_python_variants({variation.name: variation.environment or ""})[0]
    # After stack and environment, which the variant's own key covers.
    threads_and_variables = variation.setting[2:]
    key = sha256(f"{variant.arm.stack_key}\0{threads_and_variables}".encode()).hexdigest()
    arm = variant.arm.model_copy(
        update={
            "name": CONTROL if is_control else variation.name,
            "copy_number": int(is_control),
            "stack_key": key if variation.threads or variation.variables else variant.arm.stack_key,
            "notes": {"environment": "the baseline's own, not a copy"} if is_control else {},
            "factors": variation.factors,
            "threads": variation.threads,
        }
    )
    return replace(variant, arm=arm, environment=dict(variation.variables))
