"""A run where people talk: its charts as pictures, its answer as Markdown, JUnit or PDF, without paths of a machine."""

from __future__ import annotations

import html
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from workbench.core.errors import ConfigError, MissingToolError, RunFailedError
from workbench.core.formats import format_bytes, format_duration, format_moment

if TYPE_CHECKING:
    from workbench.runs.catalogue import StoredRun

FORMATS = ("png", "svg", "markdown", "pdf", "junit")
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PDF_LIMIT_S = 120
# An absolute path; an address keeps its own, and so does a unit such as pods/s.
_PART = r"[^\s/\\\"'<>|,;:()\[\]]+"
_PATH = re.compile(rf"(?:\bfile://|(?<![\w.:/~\\<]))(?:~|[A-Za-z]:)?[/\\](?:{_PART}[/\\])+(?:{_PART})?")
_MARKS = re.compile(r"([\\`*\[\]|])")
_STYLE = """body{font:11pt/1.45 system-ui,sans-serif;max-width:180mm;margin:0 auto;color:#1b1f24}
h1{font-size:16pt;margin:0 0 4pt}.question{color:#57606a;margin:0 0 10pt}table{border-collapse:collapse;margin:8pt 0}
th,td{padding:3pt 10pt 3pt 0;text-align:left;border-bottom:.5pt solid #d0d7de}
td.n{text-align:right}thead{display:table-header-group}
figure{margin:14pt 0;break-inside:avoid}figure svg{max-width:100%;height:auto;overflow:visible}
pre{white-space:pre-wrap}@page{size:A4;margin:16mm}"""


@dataclass(frozen=True)
class RunSummary:
    """What is told of a run elsewhere; all texts without paths of the machine.

    `charts`: Specs of the charts of its report, in their order. `origin`: Where the figures come from, by name.
    """

    area: str
    run_id: str
    question: str
    answer: str
    outcome: str
    conditions: tuple[str, ...]
    reasons: tuple[str, ...]
    details: tuple[str, ...]
    key_numbers: tuple[tuple[str, str], ...]
    origin: dict[str, str]
    command: str
    thresholds: Mapping[str, Any] | None
    duration_s: float | None
    started_at: str
    charts: tuple[dict[str, Any], ...]


def remove_paths(text: str) -> str:
    """A text in which absolute paths are the names of their files.

    >>> remove_paths("workbench run profile -p event_log=/data/logs/app.zstd at 4.2 pods/s, see https://a.b/c/d")
    'workbench run profile -p event_log=app.zstd at 4.2 pods/s, see https://a.b/c/d'
    """
    return _PATH.sub(lambda found: re.findall(_PART, found[0])[-1], text)


def summarize_run(run: StoredRun) -> RunSummary:
    """The summary of a run, from its record and the notebook of its report where there is one."""
    record = run.record
    from workbench.report.gallery import read_headline_and_charts

    headline, charts = read_headline_and_charts(run)
    inputs = [entry for entry in record["inputs"] if isinstance(entry, Mapping)]
    host = record["host"] if isinstance(record.get("host"), Mapping) else {}
    origin = {
        "run": run.run_id,
        "measured": f"{format_moment(record.get('started_at'))}, took {format_duration(_read_seconds(record))}",
        "version": " ".join(str(record[name])[:10] for name in ("package_version", "git_commit") if record.get(name)),
        "machine": ", ".join(
            f"{host[key]}{unit}" for key, unit in (("cpu_model", ""), ("cores", " cores")) if key in host
        ),
        "inputs": "; ".join(_describe_input(entry) for entry in inputs),
    }
    return RunSummary(
        area=run.area,
        run_id=run.run_id,
        question=remove_paths(str(headline.get("question") or record.get("title") or "")),
        answer=remove_paths(str(record.get("answer") or "No answer.")),
        outcome=(run.verdict or "no verdict") if run.state == "succeeded" else run.state,
        conditions=_clean_texts(record.get("conditions") or headline.get("conditions")),
        reasons=_clean_texts(record.get("reasons")),
        details=_clean_texts(record.get("details") or headline.get("details")),
        key_numbers=tuple(_read_key_numbers(headline.get("key_numbers"))),
        origin={name: remove_paths(text) for name, text in origin.items() if text},
        command=remove_paths(str(record.get("command") or "")),
        thresholds=record["thresholds"] if isinstance(record.get("thresholds"), Mapping) else None,
        duration_s=_read_seconds(record),
        started_at=str(record.get("started_at") or ""),
        charts=tuple(map(_clean_spec, charts)),
    )


def _clean_spec(value: Any) -> Any:
    if isinstance(value, str):
        return remove_paths(value)
    if isinstance(value, dict):
        return {remove_paths(key): _clean_spec(entry) for key, entry in value.items()}
    return [_clean_spec(entry) for entry in value] if isinstance(value, list) else value


def _clean_texts(texts: object) -> tuple[str, ...]:
    return tuple(remove_paths(str(text)) for text in texts) if isinstance(texts, list) else ()


def _read_seconds(record: Mapping[str, Any]) -> float | None:
    took_s = record.get("duration_s")
    return took_s if isinstance(took_s, int | float) and not isinstance(took_s, bool) else None


def _describe_input(entry: Mapping[str, Any]) -> str:
    path, size = str(entry.get("path")), entry.get("bytes")
    shown = f" ({format_bytes(size)})" if isinstance(size, int) else ""
    return f"{remove_paths(path)}{shown}, sha256 {str(entry.get('sha256') or 'unknown')[:12]}"


def _read_key_numbers(numbers: object) -> list[tuple[str, str]]:
    entries = [entry for entry in numbers if isinstance(entry, dict)] if isinstance(numbers, list) else []
    shown = [
        (
            str(entry.get("label") or ""),
            f"{entry.get('value', '')} {entry.get('unit') or ''}".strip(),
            entry.get("note"),
        )
        for entry in entries
    ]
    return [
        (remove_paths(label), remove_paths(f"{value} ({note})" if note else value))
        for label, value, note in shown
        if label
    ]


def choose_chart(summary: RunSummary, number: int) -> dict[str, Any]:
    """A chart by its number, from 1; an error names how many there are."""
    if not summary.charts:
        do = "workbench run NOTEBOOK makes a report with charts; --markdown needs none"
        raise ConfigError("the run has no chart", where="runs export", found=summary.run_id, do=do)
    if not 1 <= number <= len(summary.charts):
        raise ConfigError("no such chart", where="--chart", found=number, allowed=f"1 to {len(summary.charts)}")
    return summary.charts[number - 1]


def render_svg(spec: dict[str, Any]) -> str:
    """A chart as an SVG drawing."""
    import vl_convert

    from workbench.charts.renderer import find_vegalite_version

    return str(vl_convert.vegalite_to_svg(spec, vl_version=find_vegalite_version()))


def format_markdown(summary: RunSummary) -> str:
    """The summary for a comment or a job's summary page: answer, verdict, key numbers, and where it comes from."""
    outcome = ", ".join([f"**{escape_markdown(summary.outcome)}**", *map(escape_markdown, summary.conditions)])
    lines = [f"### {escape_markdown(summary.answer)}", "", f"{escape_markdown(summary.area)}: {outcome}", ""]
    lines += [f"- {escape_markdown(text)}" for text in (*summary.reasons, *summary.details)]
    lines += _format_rows(("key number", "value"), summary.key_numbers, right=True)
    rules = [(rule.outcome, rule.name, rule.found) for rule in _list_rules(summary)]
    lines += _format_rows(("threshold", "rule", "found"), rules)
    lines += ["", "<details><summary>Where it comes from</summary>"]
    lines += _format_rows(("", ""), [(name, text) for name, text in summary.origin.items()])
    if summary.command:
        fence = "`" * (max(map(len, re.findall("`+", summary.command)), default=0) + 3)
        lines += ["", fence, summary.command.replace("\n", " "), fence]
    return "\n".join([*lines, "", "</details>", ""])


def _format_rows(headers: Sequence[str], rows: Sequence[Sequence[str]], *, right: bool = False) -> list[str]:
    """A Markdown table below a blank line; nothing without rows."""
    if not rows:
        return []
    marks = ["---", "---:" if right else "---", *["---"] * (len(headers) - 2)]
    cells = [headers, marks, *([escape_markdown(text) for text in row] for row in rows)]
    return ["", *("| " + " | ".join(row) + " |" for row in cells)]


def escape_markdown(text: str) -> str:
    """A text that neither Markdown nor a table takes for its own marks, and that calls nobody by name.

    >>> escape_markdown("a|b <i> [x](y) @you")
    'a\\\\|b &lt;i&gt; \\\\[x\\\\](y) &#64;you'
    """
    line = html.escape(" ".join(text.split()), quote=False)
    return _MARKS.sub(r"\\\1", line).replace("@", "&#64;")


@dataclass(frozen=True)
class _Rule:
    name: str
    outcome: str
    found: str


def _list_rules(summary: RunSummary) -> list[_Rule]:
    rules = summary.thresholds.get("rules") if summary.thresholds else None
    listed = [rule for rule in rules if isinstance(rule, Mapping)] if isinstance(rules, list) else []
    return [
        _Rule(remove_paths(str(rule.get("rule"))), str(rule.get("outcome")), remove_paths(str(rule.get("found"))))
        for rule in listed
    ]


def format_junit(summary: RunSummary) -> str:
    """The verdict and each threshold as test cases, for services that show test results."""
    cases = [_build_case(summary, "verdict", *_judge_outcome(summary))]
    kinds = {"passed": "", "broken": "failure"}
    cases += [
        _build_case(summary, rule.name, kinds.get(rule.outcome, "error"), rule.found) for rule in _list_rules(summary)
    ]
    cases[0].set("time", f"{summary.duration_s or 0:.3f}")
    ET.SubElement(cases[0], "system-out").text = _clean_xml("\n".join([summary.answer, *summary.details]))
    counts = {f"{kind}s": str(sum(case.find(kind) is not None for case in cases)) for kind in ("failure", "error")}
    counts |= {"skipped": str(sum(case.find("skipped") is not None for case in cases))}
    about = {"name": f"workbench.{summary.area}", "tests": str(len(cases)), **counts}
    suite = ET.Element("testsuite", about | {"time": f"{summary.duration_s or 0:.3f}"})
    if summary.started_at:
        suite.set("timestamp", summary.started_at)
    suite.extend(cases)
    suites = ET.Element("testsuites")
    suites.append(suite)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _judge_outcome(summary: RunSummary) -> tuple[str, str]:
    """Kind of a test case, empty for passed, and what it found."""
    if summary.outcome == "valid":
        return "", ""
    kind = {"invalid": "failure", "no verdict": "skipped"}.get(summary.outcome, "error")
    return kind, "; ".join(summary.reasons) or summary.outcome


def _build_case(summary: RunSummary, name: str, kind: str, found: str) -> ET.Element:
    case = ET.Element("testcase", {"classname": f"workbench.{summary.area}", "name": _clean_xml(name)})
    if kind:
        ET.SubElement(case, kind, {"message": _clean_xml(found)})
    return case


def _clean_xml(text: str) -> str:
    from workbench.charts.renderer import replace_undrawable

    return str(replace_undrawable(text))


def format_html(summary: RunSummary) -> str:
    """The summary with all charts as one page for printing."""
    rows = "".join(
        f'<tr><td>{html.escape(label)}</td><td class="n">{html.escape(value)}</td></tr>'
        for label, value in summary.key_numbers
    )
    origin = "".join(f"<tr><td>{name}</td><td>{html.escape(text)}</td></tr>" for name, text in summary.origin.items())
    notes = "".join(f"<p>{html.escape(text)}</p>" for text in (*summary.reasons, *summary.details))
    figures = "".join(f"<figure>{render_svg(spec)}</figure>" for spec in summary.charts)
    outcome = ", ".join([summary.outcome, *summary.conditions])
    return (
        f'<!DOCTYPE html><html lang="en"><meta charset="utf-8"><title>{html.escape(summary.answer)}</title>'
        f'<style>{_STYLE}</style><p class="question">{html.escape(summary.question)}</p>'
        f"<h1>{html.escape(summary.answer)}</h1><p><b>{html.escape(outcome)}</b></p>{notes}<table>{rows}</table>"
        f"{figures}<h2>Where it comes from</h2><table>{origin}</table><pre>{html.escape(summary.command)}</pre></html>"
    )


def render_pdf(summary: RunSummary) -> bytes:
    """The summary with all charts as a PDF, printed by a headless Chromium."""
    from workbench.core.child_process import run_command

    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        do = "apt-get install chromium; or print report.html of the run from any browser"
        raise MissingToolError("a PDF needs Chromium", where="--pdf", found="none on PATH", allowed=BROWSERS, do=do)
    with tempfile.TemporaryDirectory() as folder:
        page, target = Path(folder, "page.html"), Path(folder, "page.pdf")
        page.write_text(format_html(summary), encoding="utf-8")
        # Chromium refuses its sandbox to root, as in a container.
        rights = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        options = [
            "--headless",
            "--disable-gpu",
            "--no-pdf-header-footer",
            f"--user-data-dir={folder}/profile",
            *rights,
        ]
        done = run_command([browser, *options, f"--print-to-pdf={target}", page.as_uri()], timeout_s=PDF_LIMIT_S)
        if not target.is_file():
            raise RunFailedError("Chromium made no PDF", where=browser, found=done.output[-300:])
        return target.read_bytes()


def render_export(summary: RunSummary, kind: str, chart: int) -> bytes:
    """A run in one of `FORMATS`; `chart` counts from 1, for the pictures."""
    from workbench.charts.renderer import render_png

    renderers: dict[str, Callable[[], bytes]] = {
        "png": lambda: render_png(choose_chart(summary, chart), scale=2),
        "svg": lambda: render_svg(choose_chart(summary, chart)).encode(),
        "markdown": lambda: format_markdown(summary).encode("utf-8", "replace"),
        "junit": lambda: format_junit(summary).encode("utf-8", "replace"),
        "pdf": lambda: render_pdf(summary),
    }
    return renderers[kind]()
