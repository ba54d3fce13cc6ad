"""Speed and memory of `workbench eventlog facts` beside the JVM profiling tool, alternating in one run.

    python -m tests.bench.bench_eventlog LOG --gb 0.1 1 3 10 --peer PEER_VENV [--trials 5] [--json FILE]

LOG is a small event log that is repeated to each size. PEER_VENV is a virtual environment with
`spark-rapids-user-tools` installed; without it only our side is measured. Wall time is that of the whole process, as a
user meets it. The JVM tool does not hash its input: ours is measured without hashing, too, and once with it.
Memory is the peak of the proportional set size (PSS) summed over all processes of the command, read every 20 ms in
runs of their own that come first and are not timed (reading it costs both sides time).
Quote medians and ratios: single times of a shared machine are worth little.
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
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tests.bench.replicate import replicate
from tests.eventlog.reference import content

OPENS = ("java.lang", "java.nio", "sun.nio.ch", "java.util")
SAMPLE_S = 0.02


@dataclass(frozen=True)
class Trial:
    size_gb: float
    contender: str
    trial: int
    wall_s: float | None
    peak_pss_mb: float | None


def commands(log: Path, out: Path, peer: Path | None, heaps: list[str]) -> dict[str, list[str]]:
    """Name to command line of every contender; the reference is the JVM tool at its best heap."""
    ours = [sys.executable, "-m", "workbench", "eventlog", "facts", str(log), "--out", str(out)]
    found = {
        "workbench, 2 processes": [*ours, "--no-hash", "--jobs", "2"],
        "workbench, 1 process": [*ours, "--no-hash", "--jobs", "1"],
        "workbench, 2 processes, sha256": [*ours, "--jobs", "2"],
    }
    if peer is not None:
        jar = next(
            peer.glob("lib/python*/site-packages/spark_rapids_pytools/resources/generated_files/core/jars/*.jar")
        )
        spark = next(peer.glob("lib/python*/site-packages/pyspark/jars"))
        opens = [part for package in OPENS for part in ("--add-opens", f"java.base/{package}=ALL-UNNAMED")]
        main = ["com.nvidia.spark.rapids.tool.profiling.ProfileMain", "--csv", "-o", str(out), str(log)]
        for heap in heaps:
            found[f"JVM profiling tool, -Xmx{heap}"] = ["java", f"-Xmx{heap}", *opens, "-cp", f"{jar}:{spark}/*", *main]
    return found


def timed(command: list[str]) -> float:
    """Wall time of the whole process in s."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def weighed(command: list[str]) -> float:
    """Peak PSS of the process tree in MB."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = [0.0]
    watcher = threading.Thread(target=_watch, args=(psutil.Process(process.pid), peak), daemon=True)
    watcher.start()
    if process.wait():
        raise SystemExit(f"exit code {process.returncode}: {command}")
    watcher.join()
    return peak[0] / 1e6


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


def report(trials: list[Trial]) -> str:
    lines = []
    for size in sorted({trial.size_gb for trial in trials}):
        of_size = [trial for trial in trials if trial.size_gb == size]
        medians = {name: _median(of_size, name) for name in dict.fromkeys(trial.contender for trial in of_size)}
        jvm = {name: value for name, value in medians.items() if name.startswith("JVM")}
        lines.append(f"\n{size:g} GB")
        for name, (wall_s, pss_mb) in medians.items():
            walls = sorted(_values(of_size, name, "wall_s"))
            line = f"  {name:<32} {wall_s:7.2f} s  [{walls[0]:.2f}, {walls[-1]:.2f}] n={len(walls)}"
            line += f"  peak {pss_mb:7,.0f} MB"
            if jvm and name not in jvm:
                best = min(jvm, key=lambda key: jvm[key][0])
                ratios = _ratios(of_size, best, name)
                spread = f"[{min(ratios):.2f}, {max(ratios):.2f}]"
                line += f"  {statistics.median(ratios):5.2f} times faster than {best} {spread}"
            lines.append(line)
    return "\n".join(lines)


def _values(trials: list[Trial], name: str, what: str) -> list[float]:
    values = (getattr(trial, what) for trial in trials if trial.contender == name)
    return [value for value in values if value is not None]


def _median(trials: list[Trial], name: str) -> tuple[float, float]:
    return statistics.median(_values(trials, name, "wall_s")), statistics.median(_values(trials, name, "peak_pss_mb"))


def _ratios(trials: list[Trial], reference: str, name: str) -> list[float]:
    """Pair by pair, since the machine's speed drifts."""
    return [
        theirs / ours
        for theirs, ours in zip(_values(trials, reference, "wall_s"), _values(trials, name, "wall_s"), strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="small event log, any codec")
    parser.add_argument("--gb", type=float, nargs="+", default=[1.0], help="sizes in GB (10^9 bytes)")
    parser.add_argument("--trials", type=int, default=5, help="alternating runs of each contender")
    parser.add_argument("--weighings", type=int, default=1, help="runs before, for memory and to warm up")
    parser.add_argument("--peer", type=Path, help="virtual environment with spark-rapids-user-tools")
    parser.add_argument("--heaps", nargs="+", default=["1g", "8g"], help="heaps of the JVM tool")
    parser.add_argument("--json", type=Path, help="write every trial here")
    parser.add_argument("--work", type=Path, help="folder for the large logs (default: a temporary one)")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(dir=options.work))
    trials: list[Trial] = []
    try:
        for size in options.gb:
            log = work / "large_eventlog"  # the JVM tool passes over names with .log
            rounds = replicate(content(options.log), log, int(size * 1e9))
            print(f"{size:g} GB: {rounds} rounds of {options.log.name}", file=sys.stderr)
            for number in range(1 - options.weighings, options.trials + 1):
                out = work / "out"
                for name, command in commands(log, out, options.peer, options.heaps).items():
                    shutil.rmtree(out, ignore_errors=True)
                    trial = Trial(
                        size,
                        name,
                        number,
                        wall_s=timed(command) if number > 0 else None,
                        peak_pss_mb=None if number > 0 else weighed(command),
                    )
                    print(f"  {trial}", file=sys.stderr)
                    # The JVM tool exits with 0 when it has read nothing.
                    if not any(out.rglob("stage_level_all_metrics.csv")) and not (out / "tables").is_dir():
                        raise SystemExit(f"{name} wrote no facts: {command}")
                    trials.append(trial)
            log.unlink()
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"load at the end {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    print(report(trials))
    if options.json:
        options.json.write_text(json.dumps([asdict(trial) for trial in trials], indent=1))


if __name__ == "__main__":
    main()
