"""Two commits in turn: is what people wait for slower at this one than at an earlier one?

The benchmarks are those of this commit, at sizes of seconds and without other systems; the workbench is each commit's
own, in an environment of its own where the two have other packages. Each trial runs both commits, the order turned from
trial to trial.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import shape
from bench.shape import Row
from workbench.core.errors import ConfigError
from workbench.indicators.stacks.commits import find_commit, open_work_tree
from workbench.stats import decide_verdicts
from workbench.stats.verdicts import SLOWER

ROOT = Path(__file__).parents[1]
QUICK: dict[str, tuple[str, ...]] = {
    "house": ("bench_house", "start"),
    "eventlog": ("bench_eventlog", "--gb", "0.1", "--no-peer"),
    "fleet": ("bench_qualify", "--logs", "10", "--no-peer"),
    "lore": ("bench_lore", "--rows", "400000"),
    "sizing-calc": ("bench_sizing_calc", "--nat", "none"),
    "analysis": ("bench_scaletest_analysis", "--workloads", "20000"),
    "submit": ("bench_scaletest_submit", "--workloads", "200", "--pods", "500", "--kubectl-pods", "2"),
}
LIMIT_S = 600
TRIALS = 4  # of all of them in a quarter of an hour
# Of the workbench alone; benchmarks, their tests and data are those of this commit on both sides.
_OWN = "workbench"
_Key = tuple[str, str, str]


@dataclass(frozen=True)
class Side:
    """A commit: a folder with its workbench beside this commit's benchmarks, and the Python to run it with."""

    name: str
    folder: Path
    python: str


def compare_commits(commit: str, names: Sequence[str], trials: int) -> int:
    """Print each figure of both commits with their ratio and verdict; 1 where this commit is slower."""
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as scratch, open_sides(commit, Path(scratch)) as sides:
        pairs = []
        for name in names:
            by_side: dict[str, dict[_Key, list[Row]]] = {side.name: {} for side in sides}
            for trial in range(trials):
                for side in sides if trial % 2 == 0 else reversed(sides):
                    shape.say(f"{name}: trial {trial + 1} of {trials}, {side.name}")
                    for row in _run(name, side, Path(scratch) / "rows.json"):
                        by_side[side.name].setdefault((row.area, row.scenario, row.side), []).append(row)
            before, now = (by_side[side.name] for side in sides)
            found_pairs = [(key, _join(before[key]), _join(now[key])) for key in now if key in before]
            # The verdicts are those of all figures together, and come at the end.
            for key, earlier, later in found_pairs:
                shape.say(f"  {key[1]}, {key[2]}: {shape.told_ratio(shape.ratio(later, earlier))} times as good")
            pairs += found_pairs
    ratios = [shape.ratio(now, before) for _, before, now in pairs]
    decisions = iter(decide_verdicts([found for found in ratios if found is not None]))
    for (key, before, now), found in zip(pairs, ratios, strict=True):
        verdict = None if found is None else next(decisions).verdict
        what = f"{key[1]}: {key[2]}"
        told = {"area": key[0], "what": what, "before": before.told(), "now": now.told()}
        rows.append({**told, "times as good": shape.told_ratio(found), "verdict": verdict or "no value"})
    shape.print_rows(rows)
    return int(any(row["verdict"] == SLOWER for row in rows))


@contextlib.contextmanager
def open_sides(commit: str, scratch: Path) -> Iterator[list[Side]]:
    """The earlier commit and this one; the work tree of the earlier one goes with the context."""
    with open_work_tree(ROOT, find_commit(ROOT, commit)) as tree:
        sides = []
        for name, source in (("before", tree), ("now", ROOT)):
            folder = scratch / name
            folder.mkdir()
            for part in ROOT.iterdir():
                if part.name not in (_OWN, ".git"):
                    (folder / part.name).symlink_to(part)
            # Copies that are compiled alike: one side with byte code and one without differ by a quarter.
            shutil.copytree(source / _OWN, folder / _OWN, ignore=shutil.ignore_patterns("__pycache__"))
            python = _find_python(source, scratch / "environment")
            subprocess.run([python, "-m", "compileall", "-q", str(folder / _OWN)], check=True)
            sides.append(Side(name, folder, python))
        yield sides


def _find_python(tree: Path, environment: Path) -> str:
    """This Python where the commit locks the same packages; else that of an environment with its own."""
    lock = "requirements.lock"
    if (tree / lock).read_bytes() == (ROOT / lock).read_bytes():
        return sys.executable
    uv = shutil.which("uv")
    if uv is None:
        raise ConfigError("that commit has other packages", where="--since", do="install uv, or name a later commit")
    python = environment / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, environment], check=True)
    subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "-r", tree / lock], check=True)
    return str(python)


def _run(name: str, side: Side, path: Path) -> list[Row]:
    """Rows of one trial; none where the benchmark does not run on that commit."""
    module, *options = QUICK[name]
    path.unlink(missing_ok=True)
    command = [side.python, "-m", f"bench.{module}", *options, "--trials", "1", "--json", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(side.folder)}
    done = subprocess.run(
        command, cwd=side.folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if not path.exists():
        shape.say(f"  FAILED: {(done.stderr.strip().splitlines() or ['said nothing'])[-1][:200]}")
        return []
    return [row for row in shape.read(path)[0] if not row.peer]


def _join(rows: Sequence[Row]) -> Row:
    """The trials of one figure as one row."""
    first = rows[0]
    trials = [value for row in rows for value in row.trials]
    return Row(first.area, first.scenario, first.side, first.unit, trials, higher_is_better=first.higher_is_better)
