"""The report page of a run: answer first, then the notebook, then provenance; works offline.

Templates, all in `templates/`: `report/index.html.j2` lays the cells out; `page.css` styles pages and the gallery;
`mode.js` chooses light or dark before painting; `report.js` draws the charts; `tables.js` sorts and filters tables,
also in live notebooks; `reader.js` is what else a reader does: contents, folding, copying commands, saving files.
`gallery.js` is the gallery's.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.core import files, redaction
from workbench.core.errors import InputError, refuse_os_errors
from workbench.core.formats import (
    NULL,
    escape_html,
    format_bytes,
    format_duration,
    format_moment,
    format_number,
    spell_nested,
)
from workbench.report.display import (
    render_chip,
    render_conditions,
    render_details,
    render_key_numbers,
    render_next_steps,
)
from workbench.runs import threshold_gate
from workbench.runs.catalogue import SAFE_NAME

if TYPE_CHECKING:
    pass

TEMPLATES = Path(__file__).parent / "templates"
# A run lies in FOLDER/AREA/RUN, and `workbench gallery FOLDER` writes the index.
GALLERY_LINK = "../../index.html"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def write_report(run_folder: str | Path, record: dict[str, Any] | None = None) -> Path:
    """Write report.html from report.ipynb and run.json of a run folder.

    `run_folder`: Folder of one run; of a failed run the page shows the failing cell.
    """
    from workbench.runs import run_folder as runs_run_folder

    folder = Path(run_folder)
    record = runs_run_folder.load_run(folder).record if record is None else redaction.redact_value(record)
    notebook = read_executed_notebook(folder / "report.ipynb")
    return files.write_text(folder / "report.html", render_page(notebook, record))


def read_executed_notebook(path: Path) -> Any:
    """The notebook at `path`, in the current notebook format."""
    with refuse_os_errors("no executed notebook", path, do="run the notebook again"):
        content = path.read_bytes()
    return parse_executed_notebook(content, path)


def parse_executed_notebook(content: bytes, where: object) -> Any:
    """The notebook in these bytes, in the current notebook format."""
    import nbformat

    try:
        text = content.decode("utf-8")
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
        if _SURROGATE.search(text):
            # Raises for half of a surrogate pair, which no page can hold.
            nbformat.writes(notebook).encode()
        return notebook
    except Exception as error:
        raise InputError(
            "not a readable notebook", where=where, found=f"{type(error).__name__}: {error}"[:200]
        ) from error


def render_page(notebook: Any, record: dict[str, Any]) -> str:
    """The page as HTML text; changes `notebook`."""
    from nbconvert.exporters.html import HTMLExporter

    from workbench.charts.renderer import pack_vega_bundle
    from workbench.report.cells import clean_markdown, prepare_page

    nonce = secrets.token_urlsafe(18)
    # Fragments replace random tokens, which a notebook cannot contain.
    token = secrets.token_hex(16)
    page = prepare_page(notebook, record, token)
    exporter = HTMLExporter(template_name="report", extra_template_basedirs=[str(TEMPLATES)], exclude_anchor_links=True)
    exporter.register_filter("clean_markdown", clean_markdown)
    # Values of the page's template.
    answer = page.headline or {}
    page_values = {
        "policy": build_security_policy(nonce),
        "version": __version__,
        "question": answer.get("question") or page.title or record["title"],
        "area": record["area"],
        # Where the run's folder has this page; elsewhere its neighbours are not linked.
        "place": f"{record['area']}/{record['run_id']}/report.html" if record.get("run_id") else "",
        "gallery": GALLERY_LINK if record.get("run_id") else "",
        "ended": format_moment(record.get("ended_at") or record.get("started_at")),
        # A percent sign stays with its number.
        "answer": re.sub(r"(?<=\d) %", "\u00a0%", str(answer.get("answer") or record.get("answer") or "")),
        "reasons": answer.get("reasons") or record.get("reasons") or [],
        "chip": render_chip(answer.get("verdict") or record.get("verdict"), record["status"]),
        "conditions": render_conditions(answer.get("conditions") or record.get("conditions")),
        "details": render_details(answer.get("details") or record.get("details")),
        "thresholds": threshold_gate.render_thresholds(record.get("thresholds")),
        "key_numbers": render_key_numbers(answer.get("key_numbers") or []),
        "next_steps": render_next_steps(answer.get("next_steps")),
        "first_chart": f"{token}:first;" if "first" in page.fragments else "",
        "failure": page.failure,
        "code_cells": page.code_cells,
        "provenance": render_provenance(record),
        "head_token": f"{token}:head;",
        "tail_token": f"{token}:tail;",
    }
    body, _ = exporter.from_notebook_node(notebook, resources={"page": page_values})
    for name, fragment in page.fragments.items():
        body = body.replace(f"{token}:{name};", fragment)
    # The reader's part first: contents take room that charts are drawn into.
    names = ("tables.js", "reader.js", "report.js")
    scripts = [f'<script nonce="{nonce}">{read_template(name)}</script>' for name in names]
    if page.charts:
        # The reader's browser unpacks it: a third of the bytes of a page that is mailed.
        scripts.insert(0, f'<script type="application/json" id="vega-bundle">"{pack_vega_bundle()}"</script>')
    head = f'<style>{read_template("page.css")}</style><script nonce="{nonce}">{read_template("mode.js")}</script>'
    return replace_surrogates(
        body.replace(f"{token}:head;", head).replace(f"{token}:tail;", page.render_specs() + "".join(scripts))
    )


def replace_surrogates(text: str) -> str:
    """Text with lone surrogates, as in broken logs, replaced.

    >>> replace_surrogates("a" + chr(0xD800)).isascii()
    True
    """
    return text.encode("utf-8", "replace").decode("utf-8")


def build_security_policy(nonce: str) -> str:
    """Content security policy of the page: no network, own scripts only, no eval."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data:; "
        "font-src data:; base-uri 'none'; form-action 'none'"
    )


def read_template(name: str) -> str:
    """A style sheet or script of the package, without lines of comments and indentation: each page carries it."""
    lines = (line.strip() for line in (TEMPLATES / name).read_text(encoding="utf-8").splitlines())
    return "\n".join(line for line in lines if line and not line.startswith(("//", "/*")))


def render_provenance(record: Mapping[str, Any]) -> str:
    """The record of the run as HTML; escaped, with dashes for unknown values."""
    host: Mapping[str, Any] = record.get("host") or {}
    facts = {
        "Run": record.get("run_id"),
        "Notebook": record.get("notebook"),
        "Started": format_moment(record.get("started_at")),
        "Took": format_duration(record.get("duration_s")),
        "Status": record.get("status"),
        "Command": record.get("command"),
        "Package": f"workbench {record.get('package_version') or NULL}",
        "Commit": record.get("git_commit"),
        "Machine": _format_machine(host),
        "System": host.get("os"),
    }
    rows = "".join(f"<div><dt>{name}</dt><dd>{_render_fact(name, value)}</dd></div>" for name, value in facts.items())
    return (
        f'<dl class="facts">{rows}</dl>'
        + _render_inputs(record)
        + _render_parameters(record)
        + _render_tables(record)
        + _render_versions(record)
    )


def _render_fact(name: str, value: object) -> str:
    text = escape_html(value) if value else NULL
    return f"<code>{text}</code>" if name in ("Run", "Command", "Commit") and value else text


def _format_machine(host: Mapping[str, Any]) -> str:
    parts = [
        str(host.get("cpu_model") or ""),
        f"{format_number(host['cores'])} cores" if host.get("cores") else "",
        f"{format_bytes(host['memory_bytes'])} memory" if host.get("memory_bytes") else "",
        ", ".join(_format_accelerator(entry) for entry in host.get("accelerators") or []) or "no accelerator",
        f"load {format_number(host['load_1m'])}" if host.get("load_1m") is not None else "",
    ]
    limits = host.get("container_limits") or {}
    parts += [
        f"limit {key.replace('_', ' ')} {_format_container_limit(key, value)}"
        for key, value in limits.items()
        if value is not None
    ]
    return ", ".join(part for part in parts if part)


def _format_container_limit(key: str, value: object) -> str:
    return format_bytes(value) if key.endswith("_bytes") and isinstance(value, int | float) else format_number(value)


def _format_accelerator(entry: object) -> str:
    return str(entry.get("name") or entry) if isinstance(entry, Mapping) else str(entry)


def _render_grid(title: str, heads: list[str], rows: list[list[str]], *, opened: bool) -> str:
    """Render a foldable HTML table; `rows` hold cells that are HTML already."""
    if not rows:
        return f'<p class="none"><strong>{title}:</strong> none</p>'
    head = "".join(f'<th scope="col">{escape_html(name)}</th>' for name in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    table = f'<table class="wb-table"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    box = f'<div class="wb-scroll" tabindex="0">{table}</div>'
    return f"<details{' open' if opened else ''}><summary>{title} ({len(rows)})</summary>{box}</details>"


def _render_inputs(record: Mapping[str, Any]) -> str:
    rows = [
        [
            escape_html(entry.get("path", NULL)),
            escape_html(format_bytes(entry.get("bytes"))),
            f"<code>{escape_html(entry.get('sha256') or NULL)}</code>",
        ]
        for entry in record.get("inputs") or []
    ]
    return _render_grid("Inputs", ["path", "size", "sha256"], rows, opened=True)


def _render_parameters(record: Mapping[str, Any]) -> str:
    rows = [
        [escape_html(name), f"<code>{escape_html(_format_parameter(value))}</code>"]
        for name, value in (record.get("config") or {}).items()
    ]
    return _render_grid("Parameters", ["name", "value"], rows, opened=False)


def _format_parameter(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if (nested := spell_nested(value)) is not None:
        return nested
    if isinstance(value, list):
        return ", ".join(map(_format_parameter, value)) or NULL
    return NULL if value is None or value == "" else str(value)


def _render_tables(record: Mapping[str, Any]) -> str:
    rows = [
        [_render_table_link(str(entry.get("name", NULL))), escape_html(format_number(entry.get("rows")))]
        for entry in record.get("tables") or []
    ]
    return _render_grid("Tables in the folder of this page, as Parquet", ["name", "rows"], rows, opened=False)


def _render_table_link(name: str) -> str:
    """Name of a table, linked to its file where it can be one."""
    is_file = SAFE_NAME.fullmatch(name)
    return f'<a class="beside" href="tables/{name}.parquet">{name}</a>' if is_file else escape_html(name)


def _render_versions(record: Mapping[str, Any]) -> str:
    rows = [
        [escape_html(name), escape_html(version or NULL)] for name, version in (record.get("versions") or {}).items()
    ]
    return _render_grid("Versions", ["library", "version"], rows, opened=False)
