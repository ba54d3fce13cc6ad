"""Speed and memory of `workbench eventlog facts` beside the JVM profiling tool and pandas, in turn.

    python -m bench.bench_eventlog [LOG] [--gb 1 ...] [--trials 5] [--no-peer] [--json FILE]

LOG is a small event log that is repeated to each size, in two shapes; without it the shipped sample, whose 212 stages
have 442 tasks. As it is, it is a log of many small queries: most of it are plans. With each task made 50, it is one of
large queries: nearly all of it are tasks, as in the logs of most clusters; the bars are for that. Wall time is that of
the whole process, as a user meets it. Neither the JVM tool nor pandas hashes its input: ours is measured without
hashing, and with it. Memory is the peak of the proportional set size (PSS) summed over all processes of the command,
read every 20 ms in runs of their own that come first, which warm up and are not timed (reading it costs both sides
time). Beside the times stand two floors, which no such reader goes below: one process that decodes the lines and
keeps nothing, and the tables built and written from values in memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from importlib import metadata
from pathlib import Path

import psutil

from bench import shape
from bench.replicate import replicate
from bench.shape import Bar, Row
from tests.eventlog.reference import content
from tests.fakes import peer

SAMPLE = Path(__file__).parents[1] / "data" / "samples" / "eventlogs" / "tpch_sf0.1.zstd"
SAMPLE_S = 0.02
OURS, ONE, HASHED = "2 processes", "1 process", "2 processes, with sha256"
JVM, JVM_LARGE, PANDAS = "JVM profiling tool, -Xmx1g", "JVM profiling tool, -Xmx8g", "json and pandas"
FLOORS = {"decode": "floor: the lines decoded, 1 process", "write": "floor: the tables written, 1 process"}
LARGE = "100 tasks a stage"
SHAPES = {"many small queries": 1, LARGE: 50}
BARS = {  # of large queries
    ("s", OURS): Bar("ratio", at_least=6, beside=JVM),
    ("s", ONE): Bar("ratio", at_least=4, beside=JVM),
    ("MB", OURS): Bar("ratio", at_least=4, beside=JVM_LARGE),
}


def commands(log: Path, out: Path, heaps: dict[str, str]) -> dict[str, list[str]]:
    """Name to command line of every side."""
    ours = [sys.executable, "-m", "workbench", "eventlog", "facts", str(log), "--out", str(out)]
    found = {
        OURS: [*ours, "--no-hash", "--jobs", "2"],
        ONE: [*ours, "--no-hash", "--jobs", "1"],
        HASHED: [*ours, "--jobs", "2"],
        PANDAS: [sys.executable, "-m", "bench.pandas_eventlog", str(log), str(out / "tables")],
    }
    return found | {name: peer.command([log], out, heap=heap) for name, heap in heaps.items()}


def run(command: list[str], out: Path, *, weigh: bool) -> dict[str, float]:
    """Wall time of the whole process, or its peak memory; nothing of an earlier run is there."""
    shutil.rmtree(out, ignore_errors=True)
    begin = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = [0.0]
    if weigh:
        watcher = threading.Thread(target=_watch, args=(psutil.Process(process.pid), peak), daemon=True)
        watcher.start()
    if process.wait():
        raise RuntimeError(f"exit code {process.returncode}: {command[:5]}")
    wall_s = time.perf_counter() - begin
    # The JVM tool exits with 0 when it has read nothing.
    if not any(out.rglob("stage_level_all_metrics.csv")) and not (out / "tables").is_dir():
        raise RuntimeError(f"no facts were written: {command[:5]}")
    return {"peak_mb": peak[0] / 1e6} if weigh else {"wall_s": wall_s}


def list_floors(log: Path, out: Path) -> dict[str, shape.Measure]:
    """The floors' sides by name; what is written is what our side once made in `out`."""
    subprocess.run(commands(log, out, {})[OURS], check=True, stdout=subprocess.DEVNULL)

    def decode() -> dict[str, float]:
        begin = time.perf_counter()
        run_floor("decode", log)
        return {"wall_s": time.perf_counter() - begin}

    return {FLOORS["decode"]: decode, FLOORS["write"]: lambda: {"wall_s": run_floor("write", out / "tables")}}


def run_floor(what: str, place: Path) -> float:
    """The figure that `eventlog_floor` prints."""
    command = [sys.executable, "-m", "bench.eventlog_floor", what, str(place)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _watch(root: psutil.Process, peak: list[float]) -> None:
    while root.is_running() and root.status() != psutil.STATUS_ZOMBIE:
        total = 0
        try:
            for process in [root, *root.children(recursive=True)]:
                total += _pss(process.pid)
        except psutil.Error:
            return
        peak[0] = max(peak[0], total)
        time.sleep(SAMPLE_S)


def _pss(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("Pss:"))


def measured(log: Path, gb: float, kind: str, trials: int, jvm: bool) -> list[Row]:
    """Both figures of one size and shape; one process and hashing are told apart where the bars are."""
    barred = kind == LARGE
    with tempfile.TemporaryDirectory() as scratch:
        large, out = Path(scratch) / "large_eventlog", Path(scratch) / "out"  # the JVM tool passes over names with .log
        replicate(content(log), large, int(gb * 1e9), SHAPES[kind])
        versions = dict.fromkeys(FLOORS.values(), "reference")
        versions |= {JVM: peer.PACKAGE, JVM_LARGE: peer.PACKAGE, PANDAS: f"pandas {metadata.version('pandas')}"}
        rows = []
        for quantity, unit, names, heap in (
            ("peak_mb", "MB", (OURS, JVM_LARGE), {JVM_LARGE: "8g"}),
            ("wall_s", "s", (OURS, *((ONE, HASHED) if barred else ()), PANDAS, JVM), {JVM: "1g"}),
        ):
            made = commands(large, out, heap if jvm else {})
            weigh = quantity == "peak_mb"
            sides: dict[str, shape.Measure] = {
                name: partial(run, made[name], out, weigh=weigh) for name in names if name in made
            }
            if not weigh:
                sides |= list_floors(large, Path(scratch) / "kept")
            found = shape.alternating(sides, trials)
            what = f"a log of {gb:g} GB, {kind}: " + ("peak memory" if unit == "MB" else "wall time")
            for side in sides:
                told = {"bar": BARS.get((unit, side)) if barred else None, "failures": found.failures[side]}
                rows.append(Row("eventlog", what, side, unit, found.of(side, quantity), versions.get(side, ""), **told))
    return rows


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("log", type=Path, nargs="?", default=SAMPLE, help="small event log, any codec")
    parser.add_argument("--gb", type=float, nargs="+", default=[1.0], help="sizes in GB (10^9 bytes)")
    parser.add_argument("--no-peer", action="store_true", help="without the JVM tool")
    options = parser.parse_args()
    missing = {} if options.no_peer else peer.missing()
    rows = []
    for gb in [0.01] if options.quick else options.gb:
        for kind in SHAPES:
            rows += measured(options.log, gb, kind, options.trials, not options.no_peer and not missing)
    shape.say(f"load at the end {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    return shape.finish(rows, options.json, missing)


if __name__ == "__main__":
    sys.exit(main())
