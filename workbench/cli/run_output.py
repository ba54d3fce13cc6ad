"""Output of `workbench run` and `workbench runs`, as text or as one JSON document."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench.console import terminal
from workbench.console.finish import print_json
from workbench.console.screen import find_width
from workbench.console.tables import format_cells, format_table
from workbench.console.terminal import create_run_progress
from workbench.core import files, formats, redaction
from workbench.core.errors import ConfigError, ExitCode, InputError, WorkbenchError, refuse_os_errors
from workbench.core.files import default_place, is_store_failure
from workbench.execution import discovery, parameters, runner
from workbench.runs import catalogue
from workbench.runs import threshold_gate as runs_thresholds
from workbench.runs.catalogue import StoredRun
from workbench.runs.run_stores import is_url

MIN_ID_CHARS = len("20261129T160828")
resolve_notebooks = discovery.resolve_notebooks


def parse_assignments(texts: Sequence[str]) -> dict[str, str]:
    """Split NAME=VALUE texts at the first "=".

    >>> parse_assignments(["version=3.10", "where=a=b"])
    {'version': '3.10', 'where': 'a=b'}
    """
    assignments: dict[str, str] = {}
    for position, text in enumerate(texts, start=1):
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise ConfigError("not an assignment", where=f"-p number {position}", allowed="-p name=value")
        if name.strip() in assignments:
            raise ConfigError("parameter is given twice", where=f"-p {name.strip()}")
        assignments[name.strip()] = value
    return assignments


def read_values(file: Path | None, texts: Sequence[str], paths: Sequence[Path]) -> dict[str, Any]:
    """The values of a parameters file and of YAML texts; later ones win, in a notebook's mapping name by name."""
    values = parameters.read_values_file(file) if file else {}
    areas = {discovery.area_from_path(path) for path in paths}
    for text in texts:
        for name, value in parameters.read_values_text(text).items():
            is_merged = name in areas and isinstance(value, dict) and isinstance(values.get(name), dict)
            is_merged = is_merged and name not in discovery.list_nested_names(paths)
            values[name] = values[name] | value if is_merged else value
    return values


def run_and_print(
    paths: Sequence[Path],
    texts: dict[str, str],
    values: dict[str, Any],
    *,
    out: str | None,
    jobs: int,
    timeout_s: int | None,
    thresholds: Path | None,
    as_json: bool,
    show: bool,
) -> int:
    """Run notebooks with parameters of a command line and print the results; returns the exit code."""
    place = out or default_place()
    if is_url(place):
        shown = redaction.strip_user_info(str(place))
        terminal.print_text(
            f"runs are made in {runner.outgoing_folder()}, and copied to {shown} when they end", err=True
        )
    try:
        with create_run_progress() as progress:
            results = runner.run_notebooks(
                paths,
                values,
                texts=texts,
                out=place,
                jobs=jobs,
                timeout_s=timeout_s,
                thresholds=thresholds,
                progress=progress,
            )
    except runner.CancelledRuns as cancelled:
        print_results(cancelled.results, as_json=as_json)
        return ExitCode.CANCELLED
    print_results(results, as_json=as_json)
    if show:
        import webbrowser

        for result in results:
            address = result.report if result.copy else result.run.report.as_uri() if result.report else None
            if address and not (address.startswith(("http", "file:")) and webbrowser.open(address)):
                sys.stderr.write(f"no browser to open {result.report} with\n")
    return max((result.exit_code for result in results), default=0)


def print_results(results: Sequence[runner.RunResult], *, as_json: bool) -> None:
    """Print verdict, answer and report of each run, and the failed cell of a failed one."""
    if as_json:
        print_json({"runs": [result.build_document() for result in results]})
        return
    for result in results:
        record = result.run.record
        name = f"{result.run.area}: " if len(results) > 1 else ""
        terminal.print_text(f"{name}{result.run.answer or 'no answer'}")
        terminal.print_text("\n".join(f"  {line}" for line in _describe_outcome(record, result.run.status)))
        if record["failure"]:
            failure = result.run.record["failure"]
            number = failure["cell_number"]
            lines = [f"{f'cell {number} of ' if number else ''}{result.notebook.name} failed:"]
            lines += ["    " + line for line in (failure["source"] or "").splitlines()]
            lines += ["  " + line for line in f"{failure['error_name']}: {failure['error']}".splitlines()]
            lines += [f"  do: {result.advice}"] if result.advice else []
            terminal.print_text("\n".join("  " + line for line in lines), err=True)
        terminal.print_text(f"  report: {result.report or result.place}")
        if result.copy_error is not None:
            terminal.print_text(f"  not copied: {result.copy_error}", err=True)
            again = f"workbench runs copy {shlex.quote(result.place)} --to URL"
            terminal.print_text(f"  the run is kept here; copy it later: {again}", err=True)


def _describe_outcome(record: Mapping[str, Any], state: str) -> list[str]:
    """Lines below an answer: verdict with what was not real, reasons, details, thresholds; records may lack parts."""
    conditions = [str(condition) for condition in record.get("conditions") or []]
    ended = state if state != "succeeded" else record.get("verdict") or "no verdict"
    lines = [", ".join([str(ended), *conditions]), *(f"why: {reason}" for reason in record["reasons"])]
    lines += [str(detail) for detail in record.get("details") or []]
    return lines + list(runs_thresholds.format_threshold_lines(record.get("thresholds")))


def print_parameters(paths: Sequence[Path], *, as_json: bool) -> None:
    """Print the parameters of notebooks with type, default and comment."""
    declared = {path: parameters.read_parameters(discovery.read_notebook(path), path.name) for path in paths}
    if as_json:
        print_json(
            {
                path.stem: [
                    {"name": item.name, "type": item.annotation, "default": item.default, "comment": item.comment}
                    for item in items
                ]
                for path, items in declared.items()
            }
        )
        return
    for path, items in declared.items():
        terminal.print_text(path.stem)
        for item in items:
            terminal.print_text(f"  {item}")
        if not items:
            terminal.print_text("  no parameters")


def find_run(name: str, out: str | None) -> StoredRun:
    """The run of an id (or the start of one), a folder or a URL."""
    return catalogue.resolve_run(name, out or default_place())


def print_run_list(
    out: str | None, *, area: str | None, status: str | None, since: str | None, verdict: str | None, as_json: bool
) -> None:
    """Print matching runs, newest first, and unreadable ones on stderr; then fail where a store did not answer."""
    for option, value, allowed in (
        ("--status", status, catalogue.STATES),
        ("--verdict", verdict, catalogue.VERDICTS),
    ):
        if value is not None and value not in allowed:
            raise ConfigError("no such " + option.strip("-"), where=option, found=value, allowed=allowed)
    begun = None if since is None else catalogue.parse_moment(since, option="--since")
    place = out or str(default_place())
    there, missed = _list_readable_runs(place)
    runs = catalogue.filter_runs(there, area=area, status=status, verdict=verdict, since=begun)
    print_run_table(runs, redaction.strip_user_info(place), as_json=as_json)
    if missed is not None:
        raise missed


def _list_readable_runs(place: str) -> tuple[list[StoredRun], InputError | None]:
    """Runs of a place, newest first, and where its store did not answer; other unreadable ones are told on stderr."""
    unread: list[InputError] = []
    runs = catalogue.list_runs(place, unreadable=unread.append)
    missed = next(filter(is_store_failure, unread), None)
    for error in unread:
        if error is not missed:
            _print_error(error)
    return runs, missed


def _print_error(error: WorkbenchError) -> None:
    terminal.print_text(str(error), err=True)


def print_run_table(runs: Sequence[StoredRun], place: str, *, as_json: bool) -> None:
    """Print a table of runs."""
    if as_json:
        print_json({"folder": place, "runs": [run.build_document() for run in runs]})
        return
    if not runs:
        sys.stderr.write(f"no runs below {place}\n")
        return
    ids = [run.run_id for run in runs]
    columns = [
        ids if find_width() is None else _shorten_ids(ids),
        [run.area for run in runs],
        [run.verdict or "no verdict" if run.state == "succeeded" else run.state for run in runs],
        [str(run.record.get("answer") or formats.NULL) for run in runs],
    ]
    terminal.print_text("\n".join(format_cells(columns, ("run", "area", "outcome", "answer"), max_lines=1)))


def _shorten_ids(ids: Sequence[str]) -> list[str]:
    """The starts of run ids, as long as it takes to tell them apart, and at least their time.

    >>> _shorten_ids(["20261129T160828Z-7df9a2", "20261129T160828Z-a52f32"])
    ['20261129T160828Z-7', '20261129T160828Z-a']
    """
    length = next(
        (n for n in range(MIN_ID_CHARS, max(map(len, ids))) if len({text[:n] for text in ids}) == len(set(ids))), None
    )
    return [text[:length] for text in ids]


def print_comparison(
    baseline: str, candidate: str, out: str | None, *, html: Path | None, any_area: bool, as_json: bool
) -> None:
    """Compare two runs, print the differences, and optionally write the page."""
    from workbench.runs import compare, compare_page

    if html is not None:
        compare_page.check_page_path(html)
    comparison = compare.compare_runs(find_run(baseline, out), find_run(candidate, out), other_area=any_area)
    page = None if html is None else compare_page.write_comparison_page(comparison, html)
    _print_with_page(
        compare_page.build_comparison_document(comparison),
        compare_page.format_comparison(comparison),
        page,
        as_json=as_json,
    )


def _print_with_page(document: dict[str, Any], text: str, page: Path | None, *, as_json: bool) -> None:
    """Print a document or its text, with the path of its page where one was written."""
    if as_json:
        print_json(document | {"page": None if page is None else str(page)})
        return
    terminal.print_text(text)
    if page is not None:
        terminal.print_text(f"page: {page}")


def print_history(
    area: str, out: str | None, *, since: str | None, figures: Sequence[str], html: Path | None, as_json: bool
) -> None:
    """Print the runs of an area over time, and optionally write the page."""
    from workbench.runs import compare_page, history, history_page

    if html is not None:
        compare_page.check_page_path(html)
    place = out or str(default_place())
    runs, missed = _list_readable_runs(place)
    if missed is not None:
        raise missed
    chosen = catalogue.filter_runs(
        runs, area=area, since=None if since is None else catalogue.parse_moment(since, option="--since")
    )
    if not chosen:
        areas = sorted({run.area for run in runs})
        do = "workbench runs list"
        raise ConfigError(
            "no runs of this area", where=redaction.strip_user_info(place), found=area, allowed=areas or None, do=do
        )
    found = history.build_history(chosen, figures=figures)
    page = None if html is None else history_page.write_history_page(found, html)
    _print_with_page(
        history_page.build_history_document(found), history_page.format_history(found), page, as_json=as_json
    )


def export_run(name: str, place: str | None, kinds: Sequence[str], *, chart: int, out: str | None) -> None:
    """Write a run in one format to a file, or as text to stdout."""
    from workbench.runs import export

    if len(kinds) != 1:
        allowed = [f"--{kind}" for kind in export.FORMATS]
        raise ConfigError("not one format", where="runs export", found=list(kinds) or None, allowed=allowed)
    (kind,) = kinds
    if chart != 1 and kind not in ("png", "svg"):
        raise ConfigError("only a picture is of one chart", where="--chart", found=chart, do="leave it out")
    if out is not None and Path(out).is_dir():
        raise ConfigError("a folder, not a file", where="--out", found=out, allowed="a file such as chart.png")
    if out is None and kind in ("png", "pdf") and sys.stdout.isatty():
        raise ConfigError("a picture cannot be printed to a terminal", where=f"--{kind}", do=f"add --out run.{kind}")
    content = export.render_export(export.summarize_run(find_run(name, place)), kind, chart)
    if out is None:
        sys.stdout.buffer.write(content)
        return
    with (
        refuse_os_errors("cannot write the file", "--out", do="name another", error_type=ConfigError),
        files.replace_atomically(out) as temporary,
    ):
        temporary.write_bytes(content)
    terminal.print_text(f"written: {out}", err=True)


def check_run(name: str, out: str | None, thresholds: Path, *, as_json: bool) -> int:
    """Check a run against thresholds and print the outcome of each; returns the exit code."""
    from workbench.runs import threshold_gate

    run = find_run(name, out)
    gate = threshold_gate.load_gate(thresholds, [run.area], discovery.list_known_areas(), out or default_place())
    judged = gate.check_run(run)
    if as_json:
        print_json({"run_id": run.run_id, "area": run.area, "folder": run.place, "thresholds": judged})
    else:
        terminal.print_text(
            "\n".join(
                [f"{run.area}: {run.run_id}", *(f"  {line}" for line in runs_thresholds.format_threshold_lines(judged))]
            )
        )
    return runs_thresholds.threshold_exit_code(judged)


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
    """Delete runs, or list them, with sizes and reasons for those kept; returns the exit code."""
    from workbench.runs import prune

    for option, value in (("--status", status), ("--area", area)):
        # An empty variable in a script must not select all runs.
        if value is not None and not value.strip(" ,"):
            raise ConfigError("no value is given", where=option, found=repr(value), do="leave the option out")
    before = None if older_than is None else catalogue.parse_moment(older_than, option="--older-than")
    states = [word.strip() for word in status.split(",") if word.strip()] if status else []
    place = out or default_place()
    if is_url(place):
        note = "a URL has no locks: a copy that another machine makes there now is only seen when it is whole"
        terminal.print_text(note, err=True)
    doomed = prune.plan_pruning(place, keep=keep, before=before, states=states, area=area, unreadable=_print_error)
    outcomes = prune.delete_runs(doomed) if delete else doomed
    gone = [outcome for outcome in outcomes if outcome.kept_because is None]
    total = sum(outcome.size_bytes for outcome in gone)
    code = ExitCode.FAILED if any(outcome.failed for outcome in outcomes) else ExitCode.GOOD
    if as_json:
        print_json(
            {
                "folder": redaction.strip_user_info(str(place)),
                "deleted": delete,
                "size_bytes": total,
                "runs": [outcome.build_document() for outcome in outcomes],
            }
        )
        return code
    word = "deleted" if delete else "would go; --yes deletes them"
    terminal.print_text(f"{len(gone)} run{'' if len(gone) == 1 else 's'}, {formats.format_bytes(total)} {word}")
    rows = [
        [
            *(entry.run.run_id, entry.run.area, entry.run.state, formats.format_bytes(entry.size_bytes)),
            f"stays: {entry.kept_because}" if entry.kept_because else "deleted" if delete else "would go",
        ]
        for entry in outcomes
    ]
    _print_table(rows, ("run", "area", "state", "size", "fate"))
    return code


def copy_runs(names: Sequence[str], out: str | None, to: str, *, as_json: bool) -> None:
    """Copy runs to a folder or URL and print where each is then."""
    from workbench.runs import catalogue, run_stores

    runs = [find_run(name, out) for name in names]
    if is_url(to):
        run_stores.check_writable(to)
    copies = []
    for run in runs:
        copies.append({"run_id": run.run_id, "folder": run.place, "copy": catalogue.copy_run(run, to)})
        if not as_json:
            terminal.print_text(f"{run.run_id}  {copies[-1]['copy']}")
    if as_json:
        print_json({"copies": copies})


def print_run(run: StoredRun, *, as_json: bool) -> None:
    """Print one run, its answer first; foreign records may lack parts."""
    record = run.record
    if as_json:
        print_json(run.build_document())
        return
    lines = [str(record.get("answer") or "No answer."), *_describe_outcome(record, run.state)]
    failure = record.get("failure")
    lines += [f"error: {failure.get('error_name')}: {failure.get('error')}"] if isinstance(failure, dict) else []
    took = formats.format_duration(record.get("duration_s"))
    lines += ["", f"{run.area}, started {formats.format_moment(record['started_at'])}, took {took}"]
    host = record.get("host") if isinstance(record.get("host"), dict) else {}
    lines += [f"on: {host.get('cpu_model')}, {host.get('cores')} cores, {host.get('os')}"] if host else []
    lines += [f"again: {record.get('command') or formats.NULL}", f"folder: {run.place}"]
    terminal.print_text("\n".join(lines))
    settings = {name: _format_setting(value) for name, value in record["config"].items()}
    _print_table({name: text for name, text in settings.items() if text}, ("setting", "value"))
    if unset := [name for name, text in settings.items() if not text]:
        terminal.print_text(f"not set: {', '.join(unset)}")
    inputs = [entry for entry in record["inputs"] if isinstance(entry, dict)]
    cells = [
        [entry.get("path"), formats.format_bytes(_read_size(entry)), str(entry.get("sha256") or formats.NULL)[:12]]
        for entry in inputs
    ]
    _print_table(cells, ("input", "size", "sha256"))
    tables = [[name, run.table_entry(name).get("rows")] for name in run.list_table_names()]
    _print_table(tables, ("table", "rows"))


def _print_table(rows: Mapping[str, object] | Sequence[Sequence[object]], headers: Sequence[str]) -> None:
    cells = list(rows.items()) if isinstance(rows, Mapping) else rows
    if cells:
        terminal.print_block("\n".join(format_table(cells, headers)))


def _format_setting(value: object) -> str:
    """A setting as it is typed on a command line; empty for none."""
    if value and (nested := formats.spell_nested(value)) is not None:
        return nested
    if isinstance(value, list | tuple):
        return ", ".join(map(_format_setting, value))
    if isinstance(value, float) and value.is_integer():
        return f"{value:.0f}"
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _read_size(entry: Mapping[str, Any]) -> float | None:
    size = entry.get("bytes")
    return size if isinstance(size, int | float) and not isinstance(size, bool) else None
