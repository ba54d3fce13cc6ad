"""What `workbench run` and `workbench runs` print: the outcome in a few lines, or one JSON document."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from workbench import notebooks, parameters, runner, runs
from workbench.errors import ConfigError
from workbench.progress import watcher

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
    as_json: bool,
    show: bool,
) -> int:
    """Run notebooks with the parameters of a command line, print how they ended, give the exit code."""
    values = parameters.read_file(file) if file else {}
    try:
        with watcher() as progress:
            results = runner.run_notebooks(
                paths, values, texts=texts, out=out, jobs=jobs, timeout_s=timeout_s, progress=progress
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
        _print(f"  {result.run.verdict or result.run.status}: {result.run.answer or 'no answer'}")
        for reason in record["reasons"]:
            _print(f"  why: {reason}")
        if record["failure"]:
            _print_failure(result)
        _print(f"  report: {result.run.report if result.run.report.is_file() else result.run.folder}")


def _print_failure(result: runner.RunResult) -> None:
    failure = result.run.record["failure"]
    number = failure["cell_number"]
    lines = [f"{'cell ' + str(number) if number else 'no cell'} of {result.notebook.name} failed:"]
    lines += ["    " + line for line in (failure["source"] or "").splitlines()]
    lines += ["  " + line for line in f"{failure['error_name']}: {failure['error']}".splitlines()]
    lines += [f"  do: {result.advice}"] if result.advice else []
    sys.stderr.write("\n".join("  " + line for line in lines) + "\n")


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


def find_run(name: str, out: Path | None) -> runs.Run:
    """The run of an id (or the start of one), or in a folder.

    Raises
    ------
    ConfigError
        No run, or more than one, is meant.
    """
    if (Path(name) / runs.RECORD).is_file():
        return runs.load(name)
    folder = out or runs.default_out()
    matches = [run for run in runs.find(folder) if run.run_id.startswith(name)]
    if len(matches) != 1:
        found = [run.run_id for run in matches[:5]] or "none"
        raise ConfigError("not one run", where=folder, found=found, allowed="a run id", do="workbench runs list")
    return matches[0]


def print_runs(found: Sequence[runs.Run], folder: Path, *, as_json: bool) -> None:
    """Print a table of runs."""
    if as_json:
        _print_json({"folder": str(folder), "runs": [run.record | {"folder": str(run.folder)} for run in found]})
        return
    if not found:
        sys.stderr.write(f"no runs below {folder}\n")
    width = max((len(run.area) for run in found), default=0)
    for run in found:
        _print(f"{run.run_id}  {run.area:<{width}}  {run.status:<9}  {run.verdict or '-':<7}  {run.answer or '-'}")


def print_run(run: runs.Run, *, as_json: bool) -> None:
    """Print one run."""
    record = run.record
    if as_json:
        _print_json(record | {"folder": str(run.folder)})
        return
    lines = [run.title, f"  {run.status}, {run.verdict or 'no verdict'}: {run.answer or 'no answer'}"]
    lines += [f"  why: {reason}" for reason in record["reasons"]]
    lines += [f"  started: {record['started_at']}, took {record['duration_s']} s"]
    lines += [f"  {name} = {value!r}" for name, value in record["config"].items()]
    lines += [
        f"  input: {entry['path']}, {entry['bytes']} bytes, sha256 {entry['sha256']}" for entry in record["inputs"]
    ]
    lines += [f"  table: {entry['name']}, {entry['rows']} rows" for entry in record["tables"]]
    lines += [f"  on: {record['host']['cpu_model']}, {record['host']['cores']} cores, {record['host']['os']}"]
    lines += [f"  again: {record['command']}", f"  folder: {run.folder}"]
    _print("\n".join(lines))


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _print_json(document: Any) -> None:
    _print(json.dumps(document, indent=1, ensure_ascii=False, default=str))
