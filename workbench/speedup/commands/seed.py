"""What `generate`, `validate`, `qualify` and `profile --csv` do for the seed method."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.terminal import say

if TYPE_CHECKING:
    from workbench.speedup.seed.applications import SeedApplication

GUIDE = "the seed method's known faults: docs/guide/speedup-seed-method.md"


def _warn(warnings: Sequence[str]) -> None:
    for warning in dict.fromkeys(warnings):
        say(f"warning: {warning}", err=True)


def _side(path: str, *, accelerated: bool) -> list[SeedApplication]:
    """Applications of a side, from profiles or event logs, checked to be of that side."""
    from workbench.speedup.seed.folder import is_profile, read_folder
    from workbench.speedup.seed.log import read
    from workbench.speedup.seed.profile_tables import application
    from workbench.speedup.seed.slots import check_side

    if is_profile(path):
        found = read_folder(path, accelerated=accelerated)
    else:
        logs = read(path)
        _warn([f"{log.where}: {warning}" for log in logs for warning in log.warnings])
        found = [application(log) for log in logs]
    check_side(found, accelerated=accelerated)
    return found


def seed_generate(cpu: str, gpu: str, output: Path, *, verbose: bool) -> None:
    """Write the factor file of the original's generator."""
    from workbench.files import write_text
    from workbench.speedup.seed.operators import generate

    found = generate(_side(cpu, accelerated=False), _side(gpu, accelerated=True))
    write_text(output, found.csv())
    _warn(found.warnings)
    if verbose:
        say(found.verbose().rstrip("\n"))
    say(f"written: {output} ({len(found.factors())} operators; {GUIDE})", err=True)


def seed_profile(eventlogs: Sequence[str], folder: Path) -> None:
    """Write a profile folder as the original's profiler does."""
    from workbench.speedup.seed.profile_folder import write_profile

    for path in write_profile(eventlogs, folder):
        say(f"written: {path}")


def seed_factors(factors: Path | None, platform: str | None) -> dict[str, float]:
    """Factors of a file or of a built-in table."""
    from workbench.errors import ConfigError
    from workbench.speedup import factor_file
    from workbench.speedup.builtin import operator_scores, platforms

    if (factors is None) == (platform is None):
        raise ConfigError("give either --factors or --platform", allowed=["--factors FILE", *platforms()])
    return factor_file.read(factors) if factors is not None else operator_scores(str(platform))


def seed_qualify(logs: Sequence[str], factors: dict[str, float], folder: Path | None) -> None:
    """Print the estimates of the original's qualification tool, and write its files."""
    from workbench.speedup.seed.numbers import cut
    from workbench.speedup.seed.qualification import qualify, write

    found = qualify(logs, factors)
    for one in found:
        what = one.estimate
        _warn([f"{one.log.app_id}: {warning}" for warning in one.warnings])
        say(
            f"{one.log.app_name} ({one.log.app_id}): {what.recommendation}, {cut(what.speedup_ratio)}x: "
            f"{what.duration_ms} ms now, {cut(what.estimated_ms)} ms estimated, task factor {cut(one.factor)}"
        )
    if folder is not None:
        for path in write(found, folder):
            say(f"written: {path}")


def seed_validate(
    cpu_log: str,
    gpu_log: str,
    output: Path,
    *,
    speedups: Path | None,
    cpu_profile: Path | None,
    gpu_profile: Path | None,
    jar: Path | None,
    verbose: bool,
) -> None:
    """Generate, qualify and compare with what was measured, as the original's validation does."""
    from workbench.errors import ConfigError
    from workbench.speedup import factor_file
    from workbench.speedup.seed.profile_folder import write_profile
    from workbench.speedup.seed.qualification import qualify, write
    from workbench.speedup.seed.validation import compare, report

    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        # The original deletes it.
        raise ConfigError("the output folder is not empty", where=output, do="give a new folder")
    if jar is not None:
        say("--jar is not needed: no Java runs here", err=True)
    say(f"Output folder = {output}\nCPU event log = {cpu_log}\nGPU event log = {gpu_log}")
    if gpu_profile is None:
        write_profile([gpu_log], output / "gpu_profile")
    measured = _side(str(gpu_profile or output / "gpu_profile"), accelerated=True)
    if speedups is None:
        if cpu_profile is None:
            write_profile([cpu_log], output / "cpu_profile")
        speedups = output / "generatedScores.csv"
        seed_generate(
            str(cpu_profile or output / "cpu_profile"),
            str(gpu_profile or output / "gpu_profile"),
            speedups,
            verbose=verbose,
        )
    found = qualify([cpu_log], factor_file.read(speedups))
    _warn([warning for one in found for warning in one.warnings])
    write(found, output / "cpu")
    say(report(compare(found, measured)).rstrip("\n"))
