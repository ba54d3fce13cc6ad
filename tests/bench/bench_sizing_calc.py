"""Time and memory of an offline `workbench sizing calc` beside the toolkit's own, alternating in one run.

    python -m tests.bench.bench_sizing_calc [--nat ENVIRONMENT] [--trials 5] [--json FILE]

ENVIRONMENT is a virtual environment with nvidia-nat 1.9.0 and its profiler; without it that of the peer tests is used
(made when it is not there), with `--nat none` only our side is measured. Wall time and peak resident memory are those
of the whole process, as a user meets it. The toolkit always draws its pictures. Quote medians and ratios: single times
of a shared machine are worth little.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.sizing import natenv
from workbench.sizing.calculator import calcfile
from workbench.sizing.calculator.calcfile import CalcOutput, ItemMetrics, LevelData, SizingMetrics

OURS, OURS_DRAWN, THEIRS = "workbench, no plots", "workbench, both plots", "toolkit, both plots"
BARS = {OURS: (1.0, 150.0), OURS_DRAWN: (2.5, 300.0)}
GOAL = (
    "--target_workflow_runtime",
    "10",
    "--target_llm_latency",
    "3",
    "--target_users",
    "100",
    "--test_gpu_count",
    "8",
)
PICTURES = ("concurrency_vs_p95_simple.png", "concurrency_vs_p95_analysis.png")


@dataclass(frozen=True)
class Trial:
    contender: str
    trial: int
    wall_s: float
    cpu_s: float
    peak_rss_mb: float


def recorded(folder: Path) -> Path:
    """A job of the size of a golden case: the documented table with some runs a level."""
    runtime = {1: 4.03488, 2: 4.71197, 4: 5.67581, 8: 7.90895, 16: 12.677, 32: 24.5307}
    llm = {1: 1.14981, 2: 1.3591, 4: 1.50682, 8: 2.10668, 16: 3.30196, 32: 6.57847}
    levels = {
        level: LevelData(
            sizing_metrics=SizingMetrics(
                llm_latency_p95=llm[level],
                workflow_runtime_p95=runtime[level],
                total_runtime=2 * runtime[level],
                per_item_metrics={
                    str(number): ItemMetrics(llm_latency=0.9 * llm[level], workflow_runtime=0.9 * runtime[level])
                    for number in range(min(level, 4))
                },
            )
        )
        for level in runtime
    }
    calcfile.write(folder / "online" / "job_1" / calcfile.NAME, CalcOutput(calc_data=levels))
    return folder


def commands(folder: Path, nat: Path | None) -> dict[str, list[str]]:
    """Name to command line of every contender."""
    offline = ["sizing", "calc", "--offline_mode", "--calc_output_dir", str(folder), *GOAL]
    ours = [sys.executable, "-m", "workbench", *offline]
    found = {OURS: [*ours, "--no-plots"], OURS_DRAWN: ours}
    return found | ({THEIRS: [str(nat), *offline]} if nat is not None else {})


def measured(name: str, trial: int, command: list[str], folder: Path) -> Trial:
    """Run once from nothing written, and look whether it wrote what it should."""
    shutil.rmtree(folder / "offline", ignore_errors=True)
    started = time.perf_counter()
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, env=natenv.environment())
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        text = said.read().decode(errors="replace")
    pictures = [path for path in PICTURES if list((folder / "offline").glob(f"job_*/{path}"))]
    if process.returncode or "75.4" not in text or len(pictures) != (0 if name == OURS else 2):
        raise SystemExit(f"{name} ended with {process.returncode}, {len(pictures)} pictures:\n{text[-2000:]}")
    return Trial(name, trial, wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def report(trials: list[Trial]) -> str:
    lines = []
    for name in dict.fromkeys(trial.contender for trial in trials):
        own = [trial for trial in trials if trial.contender == name]
        walls = sorted(trial.wall_s for trial in own)
        line = f"{name:<24} {statistics.median(walls):5.2f} s  [{walls[0]:.2f}, {walls[-1]:.2f}] n={len(walls)}"
        line += f"  CPU {statistics.median(trial.cpu_s for trial in own):5.2f} s"
        line += f"  peak {max(trial.peak_rss_mb for trial in own):5.0f} MB"
        if name in BARS:
            bar_s, bar_mb = BARS[name]
            kept = statistics.median(walls) <= bar_s and max(trial.peak_rss_mb for trial in own) <= bar_mb
            line += f"  bar {bar_s:g} s, {bar_mb:g} MB: {'kept' if kept else 'MISSED'}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nat", help="virtual environment with nvidia-nat, or none")
    parser.add_argument("--trials", type=int, default=5, help="alternating runs of each contender")
    parser.add_argument("--json", type=Path, help="write every trial here")
    options = parser.parse_args()
    nat = None
    if options.nat != "none":
        nat = (Path(options.nat) / "bin" / "python" if options.nat else natenv.installed()).with_name("nat")
    trials: list[Trial] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = recorded(Path(scratch))
        for number in range(options.trials + 1):
            for name, command in commands(folder, nat).items():
                trial = measured(name, number, command, folder)
                print(f"  {trial}", file=sys.stderr)
                # The first round fills the caches of files and fonts.
                trials += [trial] if number else []
    print(f"load at the end {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    print(report(trials))
    if options.json:
        options.json.write_text(json.dumps([asdict(trial) for trial in trials], indent=1))


if __name__ == "__main__":
    main()
