"""All headline figures by one command: every benchmark in turn, then docs/benchmarks.md.

    python -m bench [NAME ...] [--trials 5] [--again] [--dry-run] [--quick] [--json]
    python -m bench --since COMMIT [NAME ...] [--trials 4]

Each benchmark is a process of its own; what it found is kept (in bench/results, or --keep), so that a broken one is
repeated by its name, and one that was interrupted goes on: what was measured at this commit with as many trials is not
measured again without --again. One that fails is told, and never stops the others. The document is made of all that is
kept. Quiet machine: nothing else may run meanwhile. --quick tries everything at the smallest sizes, keeps it apart and
writes no document but to --out. Exit code 0, or 1 when a benchmark failed.

--since runs short ones at an earlier commit and this one, in turn, and prints the ratio of each figure; exit code 1
where this commit is slower. It takes about a quarter of an hour.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench import document, headlines, shape, since
from bench.headlines import Headline
from workbench.core import host
from workbench.core.files import cache_folder

ROOT = Path(__file__).parents[1]
HANG_FACTOR, LEAST_LIMIT_S = 10, 900
TRIALS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for and not there yet; write the document."""
    given = _parser().parse_args(arguments)
    names = list(since.QUICK) if given.since else [one.name for one in headlines.ALL]
    if unknown := sorted(set(given.names) - set(names)):
        _parser().error(f"no benchmark {', '.join(unknown)}: there is {', '.join(names)}")
    if given.since:
        return since.compare_commits(given.since, given.names or names, given.trials or since.TRIALS)
    given.trials = given.trials or TRIALS
    chosen = [one for one in headlines.ALL if one.name in given.names or (not given.names and not one.only_named)]
    keep = given.keep or (cache_folder() / "bench-quick" if given.quick else document.RESULTS)
    keep.mkdir(parents=True, exist_ok=True)
    estimate = sum(one.minutes for one in chosen)
    shape.say(f"{len(chosen)} benchmarks, about {estimate:.0f} min on two quiet cores; kept in {keep.name}")
    if given.dry_run:
        for one in chosen:
            state = "kept" if _is_kept(one, keep, given) else "to be measured"
            print(f"{one.name:<14} {one.minutes:4.1f} min  {state:<15} {shlex.join(command(one, given))}")
        return 0
    failed = [one.name for one in chosen if not _measured(one, keep, given)]
    kept = document.kept(keep)
    if given.out or not given.quick:
        text = document.written(kept)
        (given.out or document.PAGE).write_text(text)
        shape.say(f"written: {given.out or document.PAGE.relative_to(ROOT)}")
    if given.json:
        print(json.dumps({"failed": failed, "kept": kept}, indent=1))
    if failed:
        shape.say(f"FAILED: {', '.join(failed)}; again: python -m bench {' '.join(failed)}")
    return int(bool(failed))


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("names", nargs="*", metavar="NAME", help="these benchmarks, kept or not")
    made.add_argument(
        "--trials", type=int, help=f"alternating trials of each side (default {TRIALS}, {since.TRIALS} of --since)"
    )
    made.add_argument("--again", action="store_true", help="measure anew what is kept already")
    made.add_argument("--quick", action="store_true", help="smallest sizes: to try the commands, not to quote them")
    made.add_argument("--dry-run", action="store_true", help="only list what would be run")
    made.add_argument("--json", action="store_true", help="print all that is kept as one document")
    made.add_argument("--since", metavar="COMMIT", help="this commit beside an earlier one, in turn")
    made.add_argument("--keep", type=Path, help="folder of the results")
    made.add_argument("--out", type=Path, help="the document (default docs/benchmarks.md)")
    return made


def command(one: Headline, given: argparse.Namespace) -> list[str]:
    """The command line of a benchmark, as somebody would type it."""
    module, *options = one.command
    options += ["--trials", str(given.trials)] if one.repeats else []
    return ["python", "-m", f"bench.{module}", *options, *(["--quick"] if given.quick else [])]


def _is_kept(one: Headline, keep: Path, given: argparse.Namespace) -> bool:
    path = keep / f"{one.name}.json"
    if given.again or given.names or not path.exists():
        return False
    told = json.loads(path.read_text())
    same = (told["command"], told["commit"]) == (shlex.join(command(one, given)), host.read_git_commit(ROOT))
    return same and told["exit_code"] == 0


def _measured(one: Headline, keep: Path, given: argparse.Namespace) -> bool:
    """Run it unless it is kept; did it end well?"""
    if _is_kept(one, keep, given):
        shape.say(f"{one.name}: kept")
        return True
    shape.say(f"{one.name}: about {one.minutes:g} min")
    found, log = (cache_folder() / "bench" / f"{one.name}.{end}" for end in ("rows.json", "log"))
    log.parent.mkdir(parents=True, exist_ok=True)
    found.unlink(missing_ok=True)
    line = command(one, given)
    begun, at = time.perf_counter(), datetime.now(UTC)
    code, told = _run([sys.executable, *line[1:], "--json", str(found)], log, one.minutes * 60 * HANG_FACTOR)
    kept: dict[str, Any] = {
        "name": one.name,
        "area": one.area,
        "command": shlex.join(line),
        "date": at.strftime("%Y-%m-%d"),
        "wall_s": round(time.perf_counter() - begun, 1),
        "exit_code": code,
        "error": told,
        "commit": host.read_git_commit(ROOT),
        "machine": document.machine(),
        "rows": [],
        "missing": {},
    }
    if found.exists():
        kept |= json.loads(found.read_text())
        found.unlink()
    (keep / f"{one.name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    shape.say(f"{one.name}: {kept['wall_s']:.0f} s" + (f", FAILED: {told}" if code else ""))
    return code == 0


def _run(line: list[str], log: Path, limit_s: float) -> tuple[int, str]:
    """Exit code, and the last line that it said when it failed."""
    with log.open("w") as written:
        try:
            code = subprocess.run(
                line, cwd=ROOT, stdout=written, stderr=subprocess.STDOUT, timeout=max(limit_s, LEAST_LIMIT_S)
            ).returncode
        except subprocess.TimeoutExpired:
            return 124, f"not done after {max(limit_s, LEAST_LIMIT_S):.0f} s"
    lines = [text.strip() for text in log.read_text(errors="replace").splitlines() if text.strip()]
    return code, (lines[-1] if lines else "said nothing")[:200] if code else ""


if __name__ == "__main__":
    sys.exit(main())
