"""How fast is a fleet of logs measured: two processes, one process, and the JVM qualification tool, in turn.

    python -m bench.bench_qualify [LOG] [--logs 100] [--mb 4] [--trials 5] [--no-peer] [--json FILE]

LOG is a small event log (without it the shipped sample); each log of the fleet is an application of its own that
repeats it to the size of --mb. Wall time is that of a whole process which measures the folder, nothing from a cache, as
a user meets it. The JVM tool estimates by its built-in factors what ours leaves to a step after this one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import shape
from bench.bench_eventlog import SAMPLE
from bench.replicate import replicate
from bench.shape import Bar, Row
from tests.eventlog.reference import content
from tests.fakes import peer

MEASURE = """
import sys
from workbench.speedup.fleet.fleet_reader import measure_fleet
if __name__ == "__main__":
    found = measure_fleet([sys.argv[1]], jobs=int(sys.argv[2]))
    assert found.n_read == int(sys.argv[3]), found.n_read
    assert (found.applications["status"] == "complete").all()
"""
TWO, ONE, JVM = "2 processes", "1 process", "JVM qualification tool, -Xmx4g"


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


def timed(command: list[str]) -> dict[str, float]:
    """Wall time of the whole process."""
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return {"wall_s": time.perf_counter() - begin}


def qualified(folder: Path, out: Path) -> dict[str, float]:
    """The JVM tool over the folder; it ends with 0 when it has read nothing."""
    shutil.rmtree(out, ignore_errors=True)
    took = timed(peer.command([folder], out, heap="4g", main=peer.QUALIFYING))
    if not any(path.stat().st_size for path in out.rglob("*.csv")):
        raise RuntimeError("the JVM tool wrote no table")
    return took


def main() -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("log", type=Path, nargs="?", default=SAMPLE, help="small event log, any codec")
    parser.add_argument("--logs", type=int, default=100, help="logs of the fleet")
    parser.add_argument("--mb", type=float, default=4.0, help="size of each in MB (10^6 bytes)")
    parser.add_argument("--no-peer", action="store_true", help="without the JVM tool")
    options = parser.parse_args()
    count = 4 if options.quick else options.logs
    missing = {} if options.no_peer else peer.missing()
    with tempfile.TemporaryDirectory() as scratch:
        folder, script = Path(scratch) / "fleet", Path(scratch) / "measure.py"
        folder.mkdir()
        script.write_text(MEASURE)
        size = make_fleet(options.log, folder, count, int((1 if options.quick else options.mb) * 1e6))
        ours = [sys.executable, str(script), str(folder)]
        sides = {name: (lambda jobs=jobs: timed([*ours, jobs, str(count)])) for name, jobs in ((TWO, "2"), (ONE, "1"))}
        if not missing and not options.no_peer:
            sides[JVM] = lambda: qualified(folder, Path(scratch) / "out")
        found = shape.alternating(sides, options.trials)
    what = f"a fleet of {count} logs, {size / 1e6:,.0f} MB, measured"
    walls = {side: found.of(side, "wall_s") for side in sides}
    bar = Bar("ratio", at_least=1.7)
    rows = [
        Row("speedup", f"{what}: 2 processes beside 1", TWO, "s", walls[TWO], bar=bar, failures=found.failures[TWO]),
        Row(
            "speedup", f"{what}: 2 processes beside 1", ONE, "s", walls[ONE], "reference", failures=found.failures[ONE]
        ),
        Row("speedup", what, TWO, "s", walls[TWO]),
    ]
    if JVM in walls:
        rows.append(Row("speedup", what, JVM, "s", walls[JVM], peer.PACKAGE, failures=found.failures[JVM]))
    return shape.finish(rows, options.json, missing)


if __name__ == "__main__":
    sys.exit(main())
