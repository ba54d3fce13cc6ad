"""How much faster do two processes measure a fleet of 200 logs than one? Alternating trials, nothing from the cache.

    python -m tests.bench.bench_qualify LOG [--logs 200] [--mb 4] [--trials 5] [--json FILE]

LOG is a small event log; each log of the fleet is an application of its own that repeats it to the size of --mb. Wall
time is that of a whole process which measures the folder, as a user meets it; quote medians and ratios.
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
from pathlib import Path

from tests.bench.replicate import replicate
from tests.eventlog.reference import content

MEASURE = """
import sys
from workbench.speedup.fleet import measure_fleet
if __name__ == "__main__":
    found = measure_fleet([sys.argv[1]], jobs=int(sys.argv[2]), use_cache=False)
    assert found.n_read == int(sys.argv[3]), found.n_read
    assert (found.applications["status"] == "complete").all()
"""


def make_fleet(log: Path, folder: Path, count: int, size_bytes: int) -> int:
    """Write `count` logs with application ids of their own; the bytes of all."""
    model = folder / "model"
    replicate(content(log), model, size_bytes)
    lines = model.read_bytes().splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if b"SparkListenerApplicationStart" in line[:60])
    event = json.loads(lines[start])
    model.unlink()
    for number in range(count):
        lines[start] = json.dumps(event | {"App ID": f"app-{number}"}, separators=(",", ":")).encode() + b"\n"
        (folder / f"app-{number}").write_bytes(b"".join(lines))
    return sum(path.stat().st_size for path in folder.iterdir())


def timed(script: Path, folder: Path, jobs: int, count: int) -> float:
    """Wall time of the whole process in s."""
    begin = time.perf_counter()
    subprocess.run([sys.executable, str(script), str(folder), str(jobs), str(count)], check=True)
    return time.perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("log", type=Path, help="small event log, any codec")
    parser.add_argument("--logs", type=int, default=200, help="logs of the fleet")
    parser.add_argument("--mb", type=float, default=4.0, help="size of each in MB (10^6 bytes)")
    parser.add_argument("--trials", type=int, default=5, help="alternating runs with one and with two processes")
    parser.add_argument("--json", type=Path, help="write every trial here")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp())
    walls: dict[int, list[float]] = {1: [], 2: []}
    try:
        folder, script = work / "fleet", work / "measure.py"
        folder.mkdir()
        script.write_text(MEASURE)
        size = make_fleet(options.log, folder, options.logs, int(options.mb * 1e6))
        print(f"{options.logs} logs, {size / 1e6:,.0f} MB, {os.cpu_count()} cores", file=sys.stderr)
        for number in range(options.trials):
            for jobs in (1, 2) if number % 2 == 0 else (2, 1):
                walls[jobs].append(timed(script, folder, jobs, options.logs))
                print(f"  trial {number + 1}, {jobs} process(es): {walls[jobs][-1]:.2f} s", file=sys.stderr)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    ratios = [one / two for one, two in zip(walls[1], walls[2], strict=True)]
    one, two = statistics.median(walls[1]), statistics.median(walls[2])
    print(f"load at the end {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores")
    print(f"1 process {one:.2f} s, 2 processes {two:.2f} s: {statistics.median(ratios):.2f} times faster")
    print(f"by trial {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
    if options.json:
        options.json.write_text(json.dumps({"walls_s": walls, "ratios": ratios}, indent=1))


if __name__ == "__main__":
    main()
