"""From the cells of an executed notebook to the fragments of a page: charts, tables, text, errors, notes."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from workbench.chart_text import title_of
from workbench.display import HEADLINE_MIME
from workbench.formats import escape
from workbench.renderer import MIME as CHART_MIME
from workbench.renderer import script_json
from workbench.sanitizing import ansi_html, clean_markdown, clean_output
from workbench.theme import ON_DARK, config

BANNER_TAG = "papermill-error-cell-tag"
_CHART = re.compile(r"application/vnd\.vega(?:lite)?\.v\d+(?:\.|\+)json")
_IMAGES = ("image/png", "image/jpeg", "image/gif")
_HEADING = re.compile(r"\A\s*#[ \t]+(?P<title>[^\n]+?)[ \t]*#*[ \t]*(?:\n|\Z)")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


@dataclass
class Page:
    """What was found in the notebook; `fragments` stand in the page behind tokens, outside what nbconvert parses."""

    token: str
    title: str | None = None
    headline: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    code_cells: int = 0
    charts: list[dict[str, Any]] = field(default_factory=list)
    fragments: dict[str, str] = field(default_factory=dict)

    def put(self, fragment: str, name: str | None = None) -> str:
        """Keep a fragment; give the token that stands for it."""
        name = name or f"f{len(self.fragments)}"
        self.fragments[name] = fragment
        return f"{self.token}:{name};"

    def specs_html(self) -> str:
        """The charts' specs and the two sets of colours, as data that no browser runs."""
        if not self.charts:
            return ""
        modes = script_json(
            {"light": {"config": config(), "colours": {}}, "dark": {"config": config("dark"), "colours": ON_DARK}}
        )
        specs = [(f"spec-{index}", script_json(spec)) for index, spec in enumerate(self.charts)]
        return "".join(
            f'<script type="application/json" id="{name}">{text}</script>' for name, text in [("modes", modes), *specs]
        )


def prepare(notebook: Any, record: dict[str, Any], token: str) -> Page:
    """Turn each cell's outputs into one fragment, noted in its metadata; find title, headline and failure."""
    page = Page(token)
    notebook.cells = [cell for cell in notebook.cells if BANNER_TAG not in cell.metadata.get("tags", [])]
    page.title = _take_title(notebook.cells)
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    page.code_cells = len(code)
    page.headline = _find_headline(code)
    failed = _failed_cell(code, record)
    lift = failed is None
    for index, cell in enumerate(code):
        state = "not run" if failed is not None and index > failed and not cell.outputs else ""
        fragment, lift = _outputs_html(cell, page, lift=lift)
        if state:
            fragment += '<p class="note">Not run: an earlier cell failed.</p>'
        label = f"Code, cell {index + 1}" + (": failed here" if index == failed else "")
        cell.metadata["workbench"] = {
            "anchor": f"cell-{index + 1}",
            "failed": index == failed,
            "label": label,
            "fragment": page.put(fragment),
        }
    page.failure = _failure(record, failed)
    return page


def heading(cells: list[Any]) -> str | None:
    """The notebook's first heading of the first level, without marks of emphasis."""
    found = _heading(cells)
    return re.sub(r"[*`]", "", found[1]["title"]) if found else None


def _heading(cells: list[Any]) -> tuple[Any, re.Match[str]] | None:
    for cell in cells:
        if cell.cell_type == "markdown" and (match := _HEADING.match(cell.source)):
            return cell, match
    return None


def _take_title(cells: list[Any]) -> str | None:
    title = heading(cells)
    if found := _heading(cells):
        cell, match = found
        cell.source = cell.source[match.end() :]
    return title


def _find_headline(code: list[Any]) -> dict[str, Any] | None:
    for cell in code:
        for output in cell.outputs:
            data = output.get("data", {}).get(HEADLINE_MIME)
            if isinstance(data, dict):
                return dict(data)
    return None


def _failed_cell(code: list[Any], record: dict[str, Any]) -> int | None:
    if record.get("status") not in ("failed", "cancelled"):
        return None
    for index, cell in enumerate(code):
        if any(output.output_type == "error" for output in cell.outputs) or cell.metadata.get("papermill", {}).get(
            "exception"
        ):
            return index
    source = str((record.get("failure") or {}).get("source") or "").strip()
    return next((index for index, cell in enumerate(code) if source and cell.source.strip() == source), None)


def _failure(record: dict[str, Any], failed: int | None) -> dict[str, Any] | None:
    if record.get("status") != "failed":
        return None
    told = record.get("failure") or {}
    error = ": ".join(str(told[key]) for key in ("error_name", "error") if told.get(key))
    place = f"cell {failed + 1}" if failed is not None else None
    return {"error": _plain(error), "place": place, "anchor": f"cell-{failed + 1}" if failed is not None else None}


def _plain(text: str) -> str:
    from nbconvert.filters.ansi import strip_ansi

    return str(strip_ansi(text))


def _outputs_html(cell: Any, page: Page, *, lift: bool) -> tuple[str, bool]:
    parts: list[str] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            parts.append(_stream(output))
        elif output.output_type == "error":
            trace = "\n".join(output.get("traceback", [])) or f"{output.get('ename')}: {output.get('evalue')}"
            parts.append(f'<pre class="out error">{ansi_html(trace)}</pre>')
        else:
            fragment = _data_html(output.get("data", {}), page)
            if lift and 'class="chart"' in fragment and page.charts:
                page.put(fragment, "first")
                fragment, lift = '<p class="note">The chart of this cell stands at the top.</p>', False
            parts.append(fragment)
    return "".join(parts), lift


def _stream(output: Any) -> str:
    kind = "stderr" if output.get("name") == "stderr" else "stdout"
    return f'<pre class="out {kind}">{ansi_html(output.get("text", ""))}</pre>'


def _data_html(data: dict[str, Any], page: Page) -> str:
    if HEADLINE_MIME in data:
        return "" if data[HEADLINE_MIME] == page.headline else _own_html(data)
    if isinstance(data.get(CHART_MIME), dict):
        return _chart_html(data, page)
    foreign = next((kind for kind in data if _CHART.fullmatch(kind)), None)
    widget = next((kind for kind in data if "widget-view" in kind or kind == "application/javascript"), None)
    image = next((kind for kind in _IMAGES if kind in data), None)
    if image and (foreign or widget or "text/html" not in data):
        return _image_html(image, data)
    if foreign or widget:
        what = (
            "A live control"
            if widget and "widget" in widget
            else "A script"
            if widget
            else "A chart of another Vega version"
        )
        return f'<p class="note">{what} of this cell needs a running notebook and is not part of the report.</p>'
    if "text/html" in data:
        return _own_html(data)
    return _text_html(data)


def _own_html(data: dict[str, Any]) -> str:
    html, note = clean_output(str(data["text/html"]))
    if note and not html.strip():
        return f'<p class="note">{note}</p>'
    return f'<div class="out html">{html}</div>' + (f'<p class="note">{note}</p>' if note else "")


def _text_html(data: dict[str, Any]) -> str:
    if "text/markdown" in data:
        from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

        # As nbconvert's own filter, but without a pilcrow behind each heading.
        renderer = IPythonRenderer(escape=False, exclude_anchor_links=True)
        html = MarkdownWithMath(renderer=renderer).render(str(data["text/markdown"]))
        return f'<div class="prose">{clean_markdown(html)}</div>'
    if "text/latex" in data:
        return f'<pre class="out">{escape(data["text/latex"])}</pre>'
    if "text/plain" in data:
        return f'<pre class="out">{ansi_html(str(data["text/plain"]))}</pre>'
    kinds = escape(", ".join(data) or "nothing")
    return f'<p class="note">This output ({kinds}) cannot be shown here.</p>'


def _image_html(kind: str, data: dict[str, Any]) -> str:
    content = str(data[kind])
    if not _BASE64.fullmatch(content):
        return '<p class="note">A picture of this cell is damaged.</p>'
    words = str(data.get("text/plain", "picture"))
    return f'<img class="out" alt="{escape(words)}" src="data:{kind};base64,{"".join(content.split())}">'


def _chart_html(data: dict[str, Any], page: Page) -> str:
    """A chart's place: heading, picture until Vega draws, and the same in words; its spec goes to the page's end."""
    spec = {key: value for key, value in data[CHART_MIME].items() if key not in ("$schema", "title")}
    title, subtitle = title_of(data[CHART_MIME])
    words = str(data.get("text/plain", "")) or title
    number = len(page.charts)
    page.charts.append(spec)
    head = (f"<strong>{escape(title)}</strong>" if title else "") + (
        f"<span>{escape(subtitle)}</span>" if subtitle else ""
    )
    caption = f"<figcaption>{head}</figcaption>" if head else ""
    picture = _image_html("image/png", data).replace('class="out"', 'class="still"') if "image/png" in data else ""
    # Vega reads a drawing's role and label from its own spec; the figure itself needs none.
    return (
        f'<figure class="chart" id="chart-{number}">{caption}{picture}'
        f'<div class="canvas" data-spec="spec-{number}"></div>'
        f'<details class="words"><summary>Chart as text</summary><pre>{escape(words)}</pre></details></figure>'
    )
