"""Time and memory of an offline `workbench sizing calc` beside the toolkit's own, alternating in one run.

    python -m bench.bench_sizing_calc [--nat ENVIRONMENT] [--trials 5] [--json FILE]

ENVIRONMENT is a virtual environment with nvidia-nat 1.9.0 and its profiler; without it that of the peer tests is used
(made when it is not there), with `--nat none` only our side is measured. Wall time and peak resident memory are those
of the whole process, as a user meets it. The toolkit always draws its pictures. Quote medians and ratios: single times
of a shared machine are worth little.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import shape
from bench.shape import Bar, Row
from tests.sizing import natenv
from workbench.sizing.compat_nat import calc_file
from workbench.sizing.compat_nat.calc_file import CalcOutput, ItemMetrics, LevelData, SizingMetrics

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
    calc_file.write_calc_file(folder / "online" / "job_1" / calc_file.CALC_FILE_NAME, CalcOutput(calc_data=levels))
    return folder


def commands(folder: Path, nat: Path | None) -> dict[str, list[str]]:
    """Name to command line of every contender."""
    offline = ["sizing", "calc", "--offline_mode", "--calc_output_dir", str(folder), *GOAL]
    ours = [sys.executable, "-m", "workbench", *offline]
    found = {OURS: [*ours, "--no-plots"], OURS_DRAWN: ours}
    return found | ({THEIRS: [str(nat), *offline]} if nat is not None else {})


def measured(name: str, command: list[str], folder: Path) -> dict[str, float]:
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
        raise RuntimeError(f"{name} ended with {process.returncode}, {len(pictures)} pictures:\n{text[-200:]}")
    return {"wall_s": wall_s, "peak_mb": used.ru_maxrss / 1024}


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("--nat", help="virtual environment with nvidia-nat, or none")
    options = parser.parse_args()
    nat, missing = None, {}
    if options.nat != "none":
        try:
            nat = (Path(options.nat) / "bin" / "python" if options.nat else natenv.installed()).with_name("nat")
        except RuntimeError as error:
            missing[f"nvidia-nat {natenv.VERSION}"] = f"cannot be installed: {error}"
    with tempfile.TemporaryDirectory() as scratch:
        folder = recorded(Path(scratch))
        sides = {name: (lambda n=name, c=c: measured(n, c, folder)) for name, c in commands(folder, nat).items()}
        # The first round fills the caches of files and fonts.
        found = shape.alternating(sides, options.trials, warm_up=0 if options.quick else 1)
    rows = []
    for place, (quantity, unit, what) in enumerate((("wall_s", "s", "wall time"), ("peak_mb", "MB", "peak memory"))):
        for side in sides:
            bar = Bar("value", at_most=BARS[side][place]) if side in BARS else None
            version = f"nvidia-nat {natenv.VERSION}" if side == THEIRS else ""
            told = {"bar": bar, "failures": found.failures[side]}
            rows.append(Row("sizing", f"calc offline, {what}", side, unit, found.of(side, quantity), version, **told))
    return shape.finish(rows, options.json, missing)


if __name__ == "__main__":
    sys.exit(main())
