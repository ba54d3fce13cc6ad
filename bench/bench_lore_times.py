"""Do the intervals of an operator's time hold the truth, and are planted ratios found?

    python -m bench.bench_lore_times [--turns 200] [--milliseconds 5 20 100 400] [--json FILE]

Operators spin for a number of steps per row, calibrated to a time. Each is replayed for many turns, as it is and beside
a process that keeps a core busy. The series is cut into measurements by the rule that a replay stops by; the truth of a
measurement is the median of all other turns of its series, under the same neighbour. Ratios are planted by the number
of steps. Whatever else runs on this machine is in the figures: its load is in the result.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import shape
from workbench.lore.replays.replay_variants import is_enough, summarize_differences

ROWS = 2_000
REPEAT, TIGHT, BUDGET_S = 11, 0.1, 60.0
QUANTITIES = {"CPU time": "operator_cpu_s", "elapsed time": "operator_s"}
PLANTED = (1.0, 1.2, 2.0)
RATIO_MILLISECONDS = 150.0


def spin_query(steps: int) -> str:
    """A projection that spins for some steps per row."""
    return (
        f"SELECT id, aggregate(sequence(1, {max(steps, 1)}), id, (a, x) -> pmod(a * 31 + x, 1000003)) AS s "
        f"FROM (SELECT /*+ REPARTITION(2) */ id FROM range(0, {ROWS}))"
    )


def write_dumps(home: Path, steps: dict[str, int]) -> dict[str, Path]:
    """A dump of the projection for each number of steps."""
    from workbench import lore
    from workbench.lore.spark_bridge.physical_plan import PlanTree
    from workbench.lore.spark_bridge.replay_session import fresh_session

    settings = {"spark.sql.adaptive.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    found = {}
    with fresh_session(master="local[2]", filtered=False, settings=settings) as spark:
        for name, count in steps.items():
            frame = spark.sql(spin_query(count))
            top = max(PlanTree.from_frame(frame).nodes)
            lore.dump(frame, {top: None}, home / name)
            found[name] = home / name / f"loreId-{top}"
    return found


def replay_turns(folder: Path, turns: int) -> list[dict[str, Any]]:
    """Turns of one replay."""
    from workbench.lore.replays.operator_replay import ReplayOptions, replay_dump

    options = ReplayOptions(repeat=turns, tight=1e-9, budget_s=86_400, master="local[2]")
    result = replay_dump(str(folder), options, report=print)
    assert result.passed, result.answer
    return result.timings


@contextlib.contextmanager
def busy_core(is_busy: bool) -> Iterator[None]:
    """A process that computes all the time beside the block."""
    if not is_busy:
        yield
        return
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def cut_measurements(turns: list[dict[str, Any]], column: str) -> list[tuple[list[float], list[float]]]:
    """Consecutive measurements by the rule of a replay: their turns, and all other turns."""
    values = [turn[column] for turn in turns]
    # A replay looks at the elapsed time.
    looked_at = [turn["operator_s"] for turn in turns]
    seconds = [turn["scan_s"] + turn["total_s"] for turn in turns]
    found, begin = [], 0
    for end in range(1, len(values) + 1):
        part = looked_at[begin:end]
        elapsed_s = sum(seconds[begin:end])
        if is_enough([part], repeat=REPEAT, tight=TIGHT, elapsed_s=elapsed_s, budget_s=BUDGET_S):
            found.append((values[begin:end], values[:begin] + values[end:]))
            begin = end
    return found


def judge_series(name: str, is_busy: bool, turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each measurement: the truth, the interval, and whether it holds it."""
    rows = []
    for quantity, column in QUANTITIES.items():
        for own, others in cut_measurements(turns, column):
            truth, seen = statistics.median(others), summarize_differences(own)
            if seen["low"] is None:
                holds, low, high = truth <= (seen["below"] or 0.0), 0.0, seen["below"]
            else:
                holds, low, high = seen["low"] <= truth <= seen["high"], seen["low"], seen["high"]
            rows.append(
                {"operator": name, "busy": is_busy, "quantity": quantity, "n": len(own), "truth_s": truth,
                 "value_s": seen["value"], "low_s": low, "high_s": high, "holds": holds}
            )  # fmt: skip
    return rows


def measure_ratios(folders: dict[str, Path], trials: int) -> list[dict[str, Any]]:
    """CPU time of the operator with planted steps over that of the plain one, by the estimator of a replay."""
    from workbench.lore.dumps.dump_store import DumpStore
    from workbench.lore.replays.replay_variants import ReplayVariant, measure_variants
    from workbench.lore.replays.run_costs import CostMeter
    from workbench.lore.spark_bridge import replay_session
    from workbench.lore.spark_bridge.operator_isolation import RebuiltOperator, rebuild_operator
    from workbench.lore.spark_bridge.spark_internals import connect_bridge
    from workbench.lore.trust import trust_check

    rows = []
    with replay_session.fresh_session(master="local[2]") as spark:

        def build_variant(name: str, folder: Path) -> ReplayVariant:
            sidecar, child = trust_check.check_trust(folder), spark.newSession()
            replay_session.apply_dump_settings(child, sidecar)
            bridge, plan = connect_bridge(child), (folder / "plan.meta").read_bytes()

            def make() -> RebuiltOperator:
                return rebuild_operator(DumpStore(bridge, str(folder)), sidecar, plan, bridge)

            return ReplayVariant(name, make)

        for planted in PLANTED:
            sides = [build_variant("A", folders[f"planted-{planted}"]), build_variant("B", folders["plain"])]
            for side in sides:
                side.make().output_rdd().count()
            for trial in range(trials):
                meter = CostMeter(connect_bridge(spark))
                measured = measure_variants(sides, REPEAT, meter=meter, budget_s=20)
                assert measured.ratio is not None
                ratio = measured.ratio
                rows.append(
                    {"planted": planted, "trial": trial, "estimate": ratio.estimate, "low": ratio.low,
                     "high": ratio.high, "verdict": measured.verdict}
                )  # fmt: skip
    return rows


def summarize(rows: list[dict[str, Any]]) -> list[str]:
    """Lines of the result: share of intervals that hold the truth, by quantity, operator and neighbour."""
    lines = []
    for quantity in QUANTITIES:
        own = [row for row in rows if row["quantity"] == quantity]
        negative = sum(row["low_s"] < 0 for row in own)
        share = sum(row["holds"] for row in own) / len(own)
        lines.append(f"{quantity}: {len(own)} intervals, {100 * share:.0f} % hold the truth, {negative} below 0")
        for key in sorted({(row["operator"], row["busy"]) for row in own}):
            part = [row for row in own if (row["operator"], row["busy"]) == key]
            truth = statistics.median(row["truth_s"] for row in part)
            held = sum(row["holds"] for row in part)
            widths = [(row["high_s"] - row["low_s"]) / 2 / truth for row in part if row["value_s"]]
            width = f"±{100 * statistics.median(widths):.0f} %" if widths else "not resolved"
            beside = "beside a busy core" if key[1] else "as it is"
            lines.append(f"  {key[0]}, {beside}: truth {1e3 * truth:.1f} ms, {held} of {len(part)} hold it, {width}")
    return lines


def main() -> None:
    """Calibrate, replay, judge."""
    from workbench.lore.spark_bridge.replay_session import keep_session

    parser = shape.plain_parser(__doc__)
    parser.add_argument("--turns", type=int, default=200, help="turns of an operator of 5 ms; fewer of longer ones")
    parser.add_argument("--milliseconds", type=float, nargs="+", default=[5, 20, 100, 400, 1500])
    parser.add_argument("--trials", type=int, default=5, help="measurements of each planted ratio")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-lore-times-") as scratch:
        home = Path(scratch)
        probe = write_dumps(home / "probe", {"few": 200, "many": 2_200})
        with keep_session():
            few, many = (
                statistics.median(turn["operator_cpu_s"] for turn in replay_turns(folder, 9)[3:])
                for folder in probe.values()
            )
        step_s = (many - few) / 2_000
        print(f"a step of all {ROWS} rows: {1e6 * step_s:.1f} us of CPU", flush=True)
        steps = {f"{ms:g} ms": int(ms / 1e3 / step_s) for ms in options.milliseconds}
        plain = int(RATIO_MILLISECONDS / 1e3 / step_s)
        steps |= {"plain": plain, **{f"planted-{ratio}": int(ratio * plain) for ratio in PLANTED}}
        folders = write_dumps(home / "dumps", steps)
        rows: list[dict[str, Any]] = []
        load = [os.getloadavg()[0]]
        with keep_session():
            for ms in options.milliseconds:
                turns = max(int(options.turns / max(1.0, ms / 50)), 36)
                for is_busy in (False, True):
                    begun = time.perf_counter()
                    with busy_core(is_busy):
                        series = replay_turns(folders[f"{ms:g} ms"], turns)
                    rows += judge_series(f"{ms:g} ms", is_busy, series)
                    load.append(os.getloadavg()[0])
                    print(f"{ms:g} ms, busy {is_busy}: {turns} turns, {time.perf_counter() - begun:.0f} s", flush=True)
        ratios = measure_ratios(folders, options.trials)
    print("\n".join(summarize(rows)))
    for planted in PLANTED:
        own = [row for row in ratios if row["planted"] == planted]
        held = sum(row["low"] <= planted <= row["high"] for row in own)
        shown = ", ".join(f"{row['estimate']:.3f} [{row['low']:.3f}, {row['high']:.3f}]" for row in own)
        print(f"ratio {planted}: {held} of {len(own)} intervals hold it: {shown}")
    print(f"load of the machine: {min(load):.1f} to {max(load):.1f} on {os.cpu_count()} cores")
    if options.json:
        document = {"intervals": rows, "ratios": ratios, "load": load, "n_cores": os.cpu_count()}
        options.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
