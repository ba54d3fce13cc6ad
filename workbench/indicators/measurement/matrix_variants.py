"""Variants of a stack matrix: its locks installed once each, with the threads and variables of every arm."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from workbench.core.errors import ConfigError
from workbench.indicators.measurement.stack_variants import Variant, build_python_variants, choose_baseline
from workbench.indicators.stacks.environments import install_environments
from workbench.indicators.stacks.stack_sets import StackSet, Variation
from workbench.indicators.store.archive import CONTROL, Arm


def install_variations(
    stacks: StackSet,
    baseline: str | None = None,
    *,
    max_download_bytes: int,
    offline: bool = False,
    root: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Variant]:
    """Install the locks of a matrix; one variant a variation, the baseline first, and its control last.

    Combinations that differ only in threads or variables share an environment. The control has one of its own, with
    the baseline's threads and variables.
    """
    by_name = {one.name: one for one in stacks.variations}
    if CONTROL in by_name:
        raise ConfigError("a variation is named like the control", found=CONTROL, do="rename it")
    first = by_name[choose_baseline(baseline, list(by_name))]
    ordered = [(first, 0), *((one, 0) for one in stacks.variations if one is not first), (first, 1)]
    locks = {stack.key: stack for stack in stacks.stacks}
    wanted = list(dict.fromkeys((one.stack, copy) for one, copy in ordered if one.stack is not None))
    installed = install_environments(
        [(locks[key], copy) for key, copy in wanted],
        root,
        offline=offline,
        max_download_bytes=max_download_bytes,
        progress=progress,
        indexes=stacks.indexes,
    )
    made = dict(zip(wanted, installed, strict=True))
    variants = []
    for one, copy in ordered:
        if one.stack is None:
            variants.append(_build_environment_variant(one, copy))
            continue
        stack, environment = locks[one.stack], made[one.stack, copy]
        arm = Arm(
            name=CONTROL if copy else one.name,
            stack=one.name,
            stack_key=one.key or stack.key,
            copy_number=copy,
            python=environment.python_version,
            packages=environment.installed,
            lock_sha256=stack.lock_sha256,
            notes={"record_sha256": environment.record_sha256},
            factors=one.factors,
            threads=one.threads,
        )
        hashes = {package.name: package.hashes for package in stack.packages}
        variants.append(Variant(arm, str(environment.python), hashes, dict(one.variables)))
    return variants


def _build_environment_variant(one: Variation, copy: int) -> Variant:
    """Variant of an existing environment; its control is the same environment once more."""
    found = build_python_variants({one.name: one.environment or ""})[0]
    key = sha256(f"{found.arm.stack_key}\0{one.setting[2:]}".encode()).hexdigest()
    arm = found.arm.model_copy(
        update={
            "name": CONTROL if copy else one.name,
            "copy_number": copy,
            "stack_key": key if one.threads or one.variables else found.arm.stack_key,
            "notes": {"environment": "the baseline's own, not a copy"} if copy else {},
            "factors": one.factors,
            "threads": one.threads,
        }
    )
    return replace(found, arm=arm, environment=dict(one.variables))
