"""Are copies of one stack told apart on this machine, now? Three sessions of four copies, in rounds and in blocks.

    python -m bench.bench_indicators_copies [--sessions 3] [--rounds 10] [--hog]

Each session measures four environments of one numpy lock with six indicators. Every pair, metric and window of ten
rounds is one comparison at 95 %, beyond a margin of 2 %; the share that is called FASTER or SLOWER comes with its exact
95 % interval, as if comparisons were independent (pairs share arms: it is too narrow). Comparisons with a failed
run are left out, and counted. About a minute a session and design on two cores. With --hog another process takes the
memory bandwidth in the second half of each session.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from scipy.special import betaincinv

from bench import shape
from bench.shape import Row
from tests.indicators.copies import WINDOW, comparisons
from workbench.indicators.analysis.observations import load_observations

RECORD = Path(__file__).parents[1] / "data" / "samples" / "indicators" / "record.py"


def recording() -> ModuleType:
    """The script that recorded the samples."""
    spec = importlib.util.spec_from_file_location("record_indicators", RECORD)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exact(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share (Clopper and Pearson)."""
    tail = (1 - level) / 2
    low = float(betaincinv(hits, n - hits + 1, tail)) if hits else 0.0
    high = float(betaincinv(hits + 1, n - hits, 1 - tail)) if hits < n else 1.0
    return low, high


def measured(record: ModuleType, sessions: int, rounds: int, hog: bool) -> dict[str, list[str | None]]:
    """Verdicts of all comparisons by design, the designs in turn from session to session."""
    verdicts: dict[str, list[str | None]] = {"rounds": [], "blocks": []}
    for number in range(sessions):
        for design in verdicts if number % 2 == 0 else reversed(verdicts):
            with tempfile.TemporaryDirectory() as folder:
                record.copies(Path(folder), design, rounds=rounds, seed=number + 1, hog=hog)
                found = load_observations(Path(folder))
                verdicts[design] += comparisons(found.values, runs=found.runs)["verdict"].to_list()
            shape.say(f"  session {number + 1}, {design}: {len(verdicts[design])} comparisons so far")
    return verdicts


def row(design: str, verdicts: Sequence[str | None], hog: bool, sessions: int) -> Row:
    """The share that is told apart, in percent, of all sessions together."""
    known = [verdict for verdict in verdicts if verdict is not None]
    missing = f"; {len(verdicts) - len(known)} missing, for runs failed" if len(known) < len(verdicts) else ""
    false = sum(verdict in ("FASTER", "SLOWER") for verdict in known)
    low, high = exact(false, len(known)) if known else (0.0, 1.0)
    interval = f"95 % interval [{100 * low:.1f} %, {100 * high:.1f} %]"
    note = f"{false} of {len(known)} in {sessions} session(s), {interval}{missing}"
    where = "memory bandwidth taken in the second half" if hog else "undisturbed"
    name = f"copies of one stack told apart, {where}"
    peer = "reference" if design == "blocks" else ""
    share = [100 * false / len(known) if known else None]
    return Row("indicators", name, f"in {design}", "%", share, peer, note=note)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, tell, keep."""
    parser = shape.parser(__doc__)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--hog", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.rounds < WINDOW:
        parser.error(f"--rounds {chosen.rounds}: a comparison needs {WINDOW}")
    if chosen.sessions < 1:
        parser.error(f"--sessions {chosen.sessions}: at least 1")
    sessions = 1 if chosen.quick else chosen.sessions
    found = measured(recording(), sessions, chosen.rounds, chosen.hog)
    return shape.finish([row(design, found[design], chosen.hog, sessions) for design in found], chosen.json)


if __name__ == "__main__":
    sys.exit(main())
