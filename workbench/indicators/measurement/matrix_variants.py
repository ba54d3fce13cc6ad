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
    by_name = {entry.name: entry for entry in stacks.variations}
    if CONTROL in by_name:
        raise ConfigError("a variation is named like the control", found=CONTROL, do="rename it")
    first = by_name[choose_baseline(baseline, list(by_name))]
    ordered = [(first, 0), *((other, 0) for other in stacks.variations if other is not first), (first, 1)]
    locks = {stack.key: stack for stack in stacks.stacks}
    wanted = list(dict.fromkeys((entry.stack, copy) for entry, copy in ordered if entry.stack is not None))
    installed = install_environments(
        [(locks[key], copy) for key, copy in wanted],
        root,
        offline=offline,
        max_download_bytes=max_download_bytes,
        progress=progress,
        indexes=stacks.indexes,
    )
    environments = dict(zip(wanted, installed, strict=True))
    variants = []
    for variation, copy in ordered:
        if variation.stack is None:
            variants.append(_build_environment_variant(variation, copy))
            continue
        stack, environment = locks[variation.stack], environments[variation.stack, copy]
        arm = Arm(
            name=CONTROL if copy else variation.name,
            stack=variation.name,
            stack_key=variation.key or stack.key,
            copy_number=copy,
            python=environment.python_version,
            packages=environment.installed,
            lock_sha256=stack.lock_sha256,
            notes={"record_sha256": environment.record_sha256},
            factors=variation.factors,
            threads=variation.threads,
        )
        hashes = {package.name: package.hashes for package in stack.packages}
        variants.append(Variant(arm, str(environment.python), hashes, dict(variation.variables)))
    return variants


def _build_environment_variant(variation: Variation, copy: int) -> Variant:
    """Variant of an existing environment; its control is the same environment once more."""
    variant = build_python_variants({variation.name: variation.environment or ""})[0]
    key = sha256(f"{variant.arm.stack_key}\0{variation.setting[2:]}".encode()).hexdigest()
    arm = variant.arm.model_copy(
        update={
            "name": CONTROL if copy else variation.name,
            "copy_number": copy,
            "stack_key": key if variation.threads or variation.variables else variant.arm.stack_key,
            "notes": {"environment": "the baseline's own, not a copy"} if copy else {},
            "factors": variation.factors,
            "threads": variation.threads,
        }
    )
    return replace(variant, arm=arm, environment=dict(variation.variables))
