"""What `workbench run` and `workbench runs` print: the outcome in a few lines, or one JSON document."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench import catalogue, limits, notebooks, parameters, redaction, runner, runs, terminal
from workbench.catalogue import Kept
from workbench.errors import ConfigError, WorkbenchError
from workbench.formats import size
from workbench.progress import watcher

STATES = ("running", "succeeded", "failed", "cancelled", "died", "unfinished")

find = notebooks.find


def assignments(given: Sequence[str]) -> dict[str, str]:
    """Part NAME=VALUE texts; the value is everything behind the first "=".

    Raises
    ------
    ConfigError
        A text has no "=", or a name is given twice. The text is not repeated: it may be a secret.

    Examples
    --------
    >>> assignments(["version=3.10", "where=a=b"])
    {'version': '3.10', 'where': 'a=b'}
    """
    found: dict[str, str] = {}
    for position, text in enumerate(given, start=1):
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise ConfigError("not an assignment", where=f"-p number {position}", allowed="-p name=value")
        if name.strip() in found:
            raise ConfigError("parameter is given twice", where=f"-p {name.strip()}")
        found[name.strip()] = value
    return found


def run(
    paths: Sequence[Path],
    texts: dict[str, str],
    file: Path | None,
    *,
    out: Path | None,
    jobs: int,
    timeout_s: int | None,
    thresholds: Path | None,
    as_json: bool,
    show: bool,
) -> int:
    """Run notebooks with the parameters of a command line, print how they ended, give the exit code."""
    values = parameters.read_file(file) if file else {}
    try:
        with watcher() as progress:
            results = runner.run_notebooks(
                paths,
                values,
                texts=texts,
                out=out,
                jobs=jobs,
                timeout_s=timeout_s,
                thresholds=thresholds,
                progress=progress,
            )
    except runner.CancelledRuns as cancelled:
        print_results(cancelled.results, as_json=as_json)
        return 130
    print_results(results, as_json=as_json)
    if show:
        _open_reports(results)
    # The worst counts: a run that died tells less than one whose result is invalid.
    return max((result.exit_code for result in results), default=0)


def _open_reports(results: Sequence[runner.RunResult]) -> None:
    import webbrowser

    for result in results:
        if result.run.report.is_file() and not webbrowser.open(result.run.report.as_uri()):
            sys.stderr.write(f"no browser to open {result.run.report} with\n")


def print_results(results: Sequence[runner.RunResult], *, as_json: bool) -> None:
    """Print per run: verdict, answer, report; for a failed one the cell that failed."""
    if as_json:
        _print_json({"runs": [result.document() for result in results]})
        return
    for result in results:
        record = result.run.record
        _print(f"{result.run.title}")
        ended = result.run.status if result.run.status != "succeeded" else result.run.verdict or "succeeded"
        _print(f"  {ended}: {result.run.answer or 'no answer'}")
        for reason in record["reasons"]:
            _print(f"  why: {reason}")
        if record["failure"]:
            _print_failure(result)
        for line in limits.lines(record.get("thresholds")):
            _print(f"  {line}")
        _print(f"  report: {result.run.report if result.run.report.is_file() else result.run.folder}")


def _print_failure(result: runner.RunResult) -> None:
    failure = result.run.record["failure"]
    number = failure["cell_number"]
    lines = [f"{f'cell {number} of ' if number else ''}{result.notebook.name} failed:"]
    lines += ["    " + line for line in (failure["source"] or "").splitlines()]
    lines += ["  " + line for line in f"{failure['error_name']}: {failure['error']}".splitlines()]
    lines += [f"  do: {result.advice}"] if result.advice else []
    # What failed quotes logs and other texts from outside.
    terminal.say("\n".join("  " + line for line in lines), err=True)


def show_parameters(paths: Sequence[Path], *, as_json: bool) -> None:
    """Print the parameters that notebooks have, with type, default and comment."""
    declared = {path: parameters.read(notebooks.read(path), path.name) for path in paths}
    if as_json:
        _print_json({path.stem: [_parameter(item) for item in items] for path, items in declared.items()})
        return
    for path, items in declared.items():
        _print(path.stem)
        for item in items:
            _print(f"  {item}")
        if not items:
            _print("  no parameters")


def _parameter(item: parameters.Parameter) -> dict[str, Any]:
    return {"name": item.name, "type": item.annotation, "default": item.default, "comment": item.comment}


def find_run(name: str, out: str | None) -> Kept:
    """The run of an id (or the start of one), in a folder, or at a URL.

    Raises
    ------
    ConfigError
        No run, or more than one, is meant.
    """
    return catalogue.one(name, out or runs.default_out())


def list_runs(
    out: str | None, *, area: str | None, status: str | None, since: str | None, verdict: str | None, as_json: bool
) -> None:
    """Print the runs that are meant, newest first; those that cannot be read are told on stderr and passed over."""
    for option, value, allowed in (("--status", status, STATES), ("--verdict", verdict, ("valid", "invalid"))):
        if value is not None and value not in allowed:
            raise ConfigError("no such " + option.strip("-"), where=option, found=value, allowed=allowed)
    begun = None if since is None else catalogue.moment(since, option="--since")
    place = out or str(runs.default_out())
    there = catalogue.listed(place, unreadable=_tell)
    found = catalogue.chosen(there, area=area, status=status, verdict=verdict, since=begun)
    print_runs(found, redaction.without_user_info(place), as_json=as_json)


def _tell(error: WorkbenchError) -> None:
    terminal.say(str(error), err=True)


def print_runs(found: Sequence[Kept], place: str, *, as_json: bool) -> None:
    """Print a table of runs."""
    if as_json:
        _print_json({"folder": place, "runs": [run.document() for run in found]})
        return
    if not found:
        sys.stderr.write(f"no runs below {place}\n")
    width = max((len(run.area) for run in found), default=0)
    for run in found:
        verdict, answer = run.record["verdict"] or "-", " ".join(str(run.record.get("answer") or "-").split())
        _print(" ".join(f"{run.run_id}  {run.area:<{width}}  {run.state:<9}  {verdict:<7}  {answer}".splitlines()))


def diff_runs(
    baseline: str, candidate: str, out: str | None, *, html: Path | None, any_area: bool, as_json: bool
) -> None:
    """Compare two runs, print how they differ, and write the page that is asked for."""
    from workbench import diff_page, diff_words, diffing

    if html is not None:
        diff_page.check_path(html)
    found = diffing.diff(find_run(baseline, out), find_run(candidate, out), other_area=any_area)
    page = None if html is None else diff_page.write_page(found, html)
    if as_json:
        _print_json(diff_words.document(found) | {"page": None if page is None else str(page)})
        return
    _print(diff_words.text(found))
    if page is not None:
        _print(f"page: {page}")


def check_run(name: str, out: str | None, thresholds: Path, *, as_json: bool) -> int:
    """Check a run against thresholds, print how it stands to each, give the exit code."""
    from workbench import judging

    run = find_run(name, out)
    gate = judging.prepare(thresholds, [run.area], notebooks.known_areas(), out or runs.default_out())
    judged = gate.judge(run)
    if as_json:
        _print_json({"run_id": run.run_id, "area": run.area, "folder": run.place, "thresholds": judged})
    else:
        _print("\n".join([f"{run.area}: {run.run_id}", *(f"  {line}" for line in limits.lines(judged))]))
    return limits.exit_code(judged)


def prune_runs(
    out: str | None,
    *,
    keep: int | None,
    older_than: str | None,
    status: str | None,
    area: str | None,
    delete: bool,
    as_json: bool,
) -> int:
    """Delete runs, or tell which would go; what, how many bytes, and what stayed and why; give the exit code."""
    from workbench import pruning

    for option, value in (("--status", status), ("--area", area)):
        # An empty variable of a script must not mean all of them.
        if value is not None and not value.strip(" ,"):
            raise ConfigError("no value is given", where=option, found=repr(value), do="leave the option out")
    before = None if older_than is None else catalogue.moment(older_than, option="--older-than")
    states = [word.strip() for word in status.split(",") if word.strip()] if status else []
    place = out or runs.default_out()
    doomed = pruning.plan(place, keep=keep, before=before, states=states, area=area, unreadable=_tell)
    done = pruning.delete(doomed) if delete else doomed
    gone = [one for one in done if one.kept_because is None]
    total = sum(one.size_bytes for one in gone)
    code = 3 if any(one.failed for one in done) else 0
    if as_json:
        _print_json(
            {"folder": str(place), "deleted": delete, "size_bytes": total, "runs": [one.document() for one in done]}
        )
        return code
    for one in done:
        fate = f"stays: {one.kept_because}" if one.kept_because else "deleted" if delete else "would go"
        _print(f"{one.run.run_id}  {one.run.area}  {one.run.state}  {size(one.size_bytes)}  {fate}")
    word = "deleted" if delete else "would go; --yes deletes them"
    _print(f"{len(gone)} run(s), {size(total)} {word}")
    return code


def print_run(run: Kept, *, as_json: bool) -> None:
    """Print one run; a record of somebody else's making may lack parts."""
    record = run.record
    if as_json:
        _print_json(run.document())
        return
    title, took_s = record["title"], record.get("duration_s")
    lines = [title, f"  {run.state}, {record['verdict'] or 'no verdict'}: {record.get('answer') or 'no answer'}"]
    lines += [f"  why: {reason}" for reason in record["reasons"]]
    lines += [f"  {line}" for line in limits.lines(record.get("thresholds"))]
    lines += [f"  started: {record['started_at']}, took {'-' if took_s is None else f'{took_s} s'}"]
    lines += [f"  {name} = {value!r}" for name, value in record["config"].items()]
    for entry in (entry for entry in record["inputs"] if isinstance(entry, dict)):
        lines.append(f"  input: {entry.get('path')}, {entry.get('bytes')} bytes, sha256 {entry.get('sha256')}")
    lines += [f"  table: {name}, {run.entry(name).get('rows')} rows" for name in run.table_names()]
    host = record.get("host") if isinstance(record.get("host"), dict) else {}
    lines += [f"  on: {host.get('cpu_model')}, {host.get('cores')} cores, {host.get('os')}"] if host else []
    lines += [f"  again: {record.get('command') or '-'}", f"  folder: {run.place}"]
    _print("\n".join(lines))


def _print(text: str) -> None:
    """Print what may hold texts of anybody's making."""
    terminal.say(text)


def _finite(value: Any) -> Any:
    """With null for what JSON has no figure for: NaN and infinities, which records of others may hold."""
    if isinstance(value, dict):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _print_json(document: Any) -> None:
    text = json.dumps(_finite(document), indent=1, ensure_ascii=False, default=str)
    # Half of a pair of code units, which a record can hold, cannot be written.
    sys.stdout.write(text.encode("utf-8", "replace").decode() + "\n")
