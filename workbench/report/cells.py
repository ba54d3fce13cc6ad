"""Turn the cells of an executed notebook into HTML fragments: charts, tables, text, errors."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from workbench.charts.data import extract_title
from workbench.charts.renderer import CHART_MIME, format_script_json
from workbench.charts.theme import ON_DARK, build_vega_config
from workbench.core.formats import escape_html, format_bytes
from workbench.report.display import HEADLINE_MIME

_WORDS = ["a", "abbr", "b", "br", "code", "del", "em", "i", "img", "ins", "kbd", "mark", "q", "s", "samp", "small"]
_MORE_WORDS = ["span", "strong", "sub", "sup", "u", "var"]
_BLOCKS = ["blockquote", "details", "div", "figcaption", "figure", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "p", "pre"]
_LISTS = ["dd", "dl", "dt", "li", "ol", "summary", "ul"]
_TABLES = ["caption", "col", "colgroup", "table", "tbody", "td", "tfoot", "th", "thead", "tr"]
_TAGS = _WORDS + _MORE_WORDS + _BLOCKS + _LISTS + _TABLES
_DATA_IMAGE = re.compile(r"data:image/(png|jpeg|gif|svg\+xml);base64,", re.IGNORECASE)
_SAFE_LINK = re.compile(r"(https?:|mailto:|#|[^:/?#]*(?:[/?#]|$))", re.IGNORECASE)
_SCRIPT = re.compile(r"<script\b.*?(?:</script\s*>|\Z)", re.IGNORECASE | re.DOTALL)
_ELSEWHERE = re.compile(r"@import|url\(\s*[\"']?(?!data:|#)", re.IGNORECASE)
_LOADERS = ["applet", "base", "embed", "form", "frame", "frameset", "iframe", "link", "meta", "object", "template"]
_SOURCES = {"src", "srcset", "poster", "background", "data", "action", "formaction", "xlink:href"}
BANNER_TAG = "papermill-error-cell-tag"
MAX_MARKUP = 200_000
"""Tags of displayed HTML on a page; some thousand rows of a table. Cleaning takes a second for 40,000."""
RAISES_TAG = "raises-exception"
# A chart that stays where it is: the first without it stands at the top of the page.
IN_PLACE_TAG = "in-place"
# Jupyter's tag of cells that run in a live notebook only: a page has nothing of them.
LIVE_ONLY_TAG = "skip-execution"
_CHART_MIME = re.compile(r"application/vnd\.vega(?:lite)?\.v\d+(?:\.|\+)json")
_IMAGES = ("image/png", "image/jpeg", "image/gif")
_HEADING = re.compile(r"\A\s*#[ \t]+(?P<title>[^\n]+?)[ \t]*#*[ \t]*(?:\n|\Z)")
_ATTACHMENT = re.compile(r"""(?<=\]\()attachment:([^)\s]+)|(?<=src=["'])attachment:([^"']+)""")
_BASE64 = re.compile(r"[A-Za-z0-9+/=\s]*")


def clean_markdown(html: str) -> str:
    """Rendered markdown reduced to tags of prose; images only when embedded in the page.

    >>> clean_markdown('<p onclick="x()">good<script>bad()</script></p>')
    '<p>good</p>'
    >>> clean_markdown('<a href="javascript:bad()">here</a>')
    '<a>here</a>'
    """
    import bleach

    return str(
        bleach.clean(
            _SCRIPT.sub("", html),
            tags=_TAGS,
            attributes=_is_safe_markdown_attribute,
            protocols=["http", "https", "mailto", "data"],
            strip=True,
            strip_comments=True,
        )
    )


def _is_safe_markdown_attribute(tag: str, name: str, value: str) -> bool:
    if name in ("class", "id", "title", "lang"):
        return True
    if tag == "a" and name == "href":
        return bool(_SAFE_LINK.match(value.strip())) and not value.strip().lower().startswith("data:")
    if tag == "img":
        return name in ("alt", "width", "height") or (name == "src" and bool(_DATA_IMAGE.match(value)))
    return tag in ("td", "th") and name in ("colspan", "rowspan", "align", "scope")


def clean_output(html: str) -> tuple[str, str]:
    """Displayed HTML without scripts, handlers and external addresses, and a note on what was removed.

    It comes from this project or from libraries, so its styles and drawings stay. Every tag is closed, so that it
    cannot swallow the page after it. The page's policy forbids the rest anyway; this is the first of two fences.

    >>> clean_output('<b>12</b><script src="https://example.org/a.js"></script>')
    ('<b>12</b>', 'A script of this output was removed.')
    >>> clean_output('<p onclick="bad()">open')
    ('<p>open</p>', '')
    """
    from bs4 import BeautifulSoup, Comment

    soup = BeautifulSoup(html, features="html.parser")
    scripts = soup.find_all("script")
    live = soup.find_all("style", attrs={"data-live": True})
    foreign = [style for style in soup.find_all("style") if _ELSEWHERE.search(style.text)]
    comments = soup.find_all(string=lambda text: isinstance(text, Comment))
    for element in [*scripts, *soup.find_all(_LOADERS), *live, *foreign, *comments]:
        element.extract()
    for element in soup.find_all(True):
        for name in [
            name for name, value in element.attrs.items() if not _is_safe_attribute(element.name, name, str(value))
        ]:
            del element[name]
    return str(soup), "A script of this output was removed." if scripts else ""


def _is_safe_attribute(tag: str, name: str, value: str) -> bool:
    name, value = name.lower(), value.strip()
    if name.startswith("on"):
        return False
    if name == "style":
        return not _ELSEWHERE.search(value)
    if name == "href":
        return bool(_SAFE_LINK.match(value)) if tag == "a" else value.startswith(("#", "data:image/"))
    return name not in _SOURCES or value.startswith(("#", "data:image/"))


def render_ansi(text: str) -> str:
    """Terminal output as escaped HTML with its colours."""
    from nbconvert.filters.ansi import ansi2html

    html: Any = ansi2html(text)
    return str(html)


@dataclass
class PageContent:
    """Content of the notebook; `fragments` replace tokens in the page after nbconvert has rendered it.

    `markup`: Tags of displayed HTML that were cleaned for this page.
    """

    token: str
    title: str | None = None
    headline: dict[str, Any] | None = None
    failure: dict[str, Any] | None = None
    code_cells: int = 0
    markup: int = 0
    charts: list[dict[str, Any]] = field(default_factory=list)
    fragments: dict[str, str] = field(default_factory=dict)

    def add_fragment(self, fragment: str, name: str | None = None) -> str:
        """Store a fragment; returns its token."""
        name = name or f"f{len(self.fragments)}"
        self.fragments[name] = fragment
        return f"{self.token}:{name};"

    def render_specs(self) -> str:
        """Specs of the charts and both colour modes, as JSON script elements."""
        if not self.charts:
            return ""
        modes = format_script_json(
            {
                "light": {"config": build_vega_config(), "colours": {}},
                "dark": {"config": build_vega_config("dark"), "colours": ON_DARK},
            }
        )
        specs = [(f"spec-{index}", format_script_json(spec)) for index, spec in enumerate(self.charts)]
        return "".join(
            f'<script type="application/json" id="{name}">{text}</script>' for name, text in [("modes", modes), *specs]
        )


def prepare_page(notebook: Any, record: dict[str, Any], token: str) -> PageContent:
    """Turn the outputs of each cell into a fragment (in its metadata); find title, headline and failure."""
    page = PageContent(token)
    left_out = {BANNER_TAG, LIVE_ONLY_TAG}
    notebook.cells = [cell for cell in notebook.cells if not left_out & set(cell.metadata.get("tags", []))]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = embed_attachments(cell.source, cell.get("attachments") or {})
    page.title = _take_title(notebook.cells)
    _mark_introduction(notebook.cells)
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    page.code_cells = len(code)
    page.headline = _find_headline(code)
    failed = _find_failed_cell(code, record)
    lift = failed is None
    for index, cell in enumerate(code):
        state = "not run" if failed is not None and index > failed and not cell.outputs else ""
        fragment, lift = _render_outputs(cell, page, lift=lift)
        if state:
            fragment += '<p class="note">Not run: an earlier cell failed.</p>'
        if not fragment and page.headline is not None and _find_headline([cell]) == page.headline:
            _drop_lone_heading(notebook.cells, cell)
        label = f"Code, cell {index + 1}" + (": failed here" if index == failed else "")
        cell.metadata["workbench"] = {
            "anchor": f"cell-{index + 1}",
            "failed": index == failed,
            "label": label,
            "fragment": page.add_fragment(fragment),
        }
    page.failure = _build_failure(record, failed)
    return page


def embed_attachments(source: str, attachments: dict[str, Any]) -> str:
    """Markdown with the pictures that are attached to its cell in place of their names; of others nothing is left.

    >>> embed_attachments("![chart](attachment:a.png)", {"a.png": {"image/png": "iVBORw=="}})
    '![chart](data:image/png;base64,iVBORw==)'
    >>> embed_attachments("![chart](attachment:b.png)", {})
    '![chart]()'
    """

    def embed(match: re.Match[str]) -> str:
        found = attachments.get(unquote(match[1] or match[2]))
        bundle: dict[str, Any] = found if isinstance(found, dict) else {}
        kinds = [kind for kind in (*_IMAGES, "image/svg+xml") if kind in bundle]
        if not kinds:
            return ""
        content = bundle[kinds[0]]
        text = "".join(content) if isinstance(content, list) else str(content)
        if kinds[0] == "image/svg+xml" and not _BASE64.fullmatch(text):
            text = base64.b64encode(text.encode()).decode()
        return f"data:{kinds[0]};base64,{''.join(text.split())}"

    return _ATTACHMENT.sub(embed, source)


def _drop_lone_heading(cells: list[Any], cell: Any) -> None:
    """Take away the heading of a section whose only content, the answer, stands at the top of the page."""
    place = next(number for number, candidate in enumerate(cells) if candidate is cell)
    before = cells[place - 1] if place else None
    if before is not None and before.cell_type == "markdown" and re.fullmatch(r"\s*#{2,6} [^\n]*\s*", before.source):
        del cells[place - 1]


def find_first_heading(cells: list[Any]) -> str | None:
    """The first level-1 heading of the notebook, without emphasis."""
    heading = _match_first_heading(cells)
    return re.sub(r"[*`]", "", heading[1]["title"]) if heading else None


def _match_first_heading(cells: list[Any]) -> tuple[Any, re.Match[str]] | None:
    """First level-1 heading of the notebook: its cell and the match of its text; null without one."""
    for cell in cells:
        if cell.cell_type == "markdown" and (match := _HEADING.match(cell.source)):
            return cell, match
    return None


def _take_title(cells: list[Any]) -> str | None:
    title = find_first_heading(cells)
    if heading := _match_first_heading(cells):
        cell, match = heading
        cell.source = cell.source[match.end() :]
    return title


def _mark_introduction(cells: list[Any]) -> None:
    """Mark the text below the title, which is about the notebook: a reader of its report comes for the answer."""
    first = cells[0] if cells else None
    if first is not None and first.cell_type == "markdown" and first.source.strip():
        first.metadata["workbench"] = {"introduction": True}


def _find_headline(code: list[Any]) -> dict[str, Any] | None:
    for cell in code:
        for output in cell.outputs:
            data = output.get("data", {}).get(HEADLINE_MIME)
            if isinstance(data, dict):
                return dict(data)
    return None


def _find_failed_cell(code: list[Any], record: dict[str, Any]) -> int | None:
    """Index of the code cell that failed; null if none did, or it is not known."""
    if record.get("status") not in ("failed", "cancelled"):
        return None
    for index, cell in enumerate(code):
        told = cell.metadata.get("papermill", {}).get("exception")
        raised = any(output.output_type == "error" for output in cell.outputs)
        if told is True or (raised and RAISES_TAG not in cell.metadata.get("tags", [])):
            return index
    source = str((record.get("failure") or {}).get("source") or "").strip()
    return next((index for index, cell in enumerate(code) if source and cell.source.strip() == source), None)


def _build_failure(record: dict[str, Any], failed: int | None) -> dict[str, Any] | None:
    """Error of a failed run with its cell and the anchor in the page; null if it did not fail."""
    if record.get("status") != "failed":
        return None
    failure = record.get("failure") or {}
    error = ": ".join(str(failure[key]) for key in ("error_name", "error") if failure.get(key))
    place = f"cell {failed + 1}" if failed is not None else None
    return {
        "error": _strip_colours(error),
        "place": place,
        "anchor": f"cell-{failed + 1}" if failed is not None else None,
    }


def _strip_colours(text: str) -> str:
    from nbconvert.filters.ansi import strip_ansi

    return str(strip_ansi(text))


def _render_outputs(cell: Any, page: PageContent, *, lift: bool) -> tuple[str, bool]:
    """Render a cell's outputs as HTML; with `lift` its first chart moves to the top of the page.

    Returns: The HTML, and whether a chart is still to be lifted.
    """
    parts: list[str] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            kind = "stderr" if output.get("name") == "stderr" else "stdout"
            stream = f'<pre class="out {kind}">{render_ansi(output.get("text", ""))}</pre>'
            parts.append(stream)
        elif output.output_type == "error":
            trace = "\n".join(output.get("traceback", [])) or f"{output.get('ename')}: {output.get('evalue')}"
            parts.append(f'<pre class="out error">{render_ansi(trace)}</pre>')
        else:
            fragment = _render_data(output.get("data", {}), page)
            if lift and 'class="chart"' in fragment and IN_PLACE_TAG not in cell.metadata.get("tags", []):
                page.add_fragment(fragment, "first")
                fragment, lift = "", False
            parts.append(fragment)
    return "".join(parts), lift


def _render_data(data: dict[str, Any], page: PageContent) -> str:
    """Render an output as HTML: headline, chart, image, HTML or text, whichever comes first of those that it has.

    `data`: Contents by MIME type. Live controls are replaced with a note.
    """
    if HEADLINE_MIME in data:
        return "" if data[HEADLINE_MIME] == page.headline else _render_own_html(data, page)
    if isinstance(data.get(CHART_MIME), dict):
        # Render a chart: heading, picture until Vega draws it, description; its spec goes to the end of the page.
        spec = {key: value for key, value in data[CHART_MIME].items() if key not in ("$schema", "title")}
        title, subtitle = extract_title(data[CHART_MIME])
        words = str(data.get("text/plain", "")) or title
        number = len(page.charts)
        page.charts.append(spec)
        head = (f"<strong>{escape_html(title)}</strong>" if title else "") + (
            f"<span>{escape_html(subtitle)}</span>" if subtitle else ""
        )
        caption = f"<figcaption>{head}</figcaption>" if head else ""
        picture = (
            _render_image("image/png", data).replace('class="out"', 'class="still"') if "image/png" in data else ""
        )
        # Vega sets role and label of the drawing; the figure element needs none.
        return (
            f'<figure class="chart" id="chart-{number}">{caption}{picture}'
            f'<div class="canvas" data-spec="spec-{number}"></div>'
            f'<details class="words"><summary>Chart as text</summary><pre>{escape_html(words)}</pre></details></figure>'
        )
    foreign = next((kind for kind in data if _CHART_MIME.fullmatch(kind)), None)
    widget = next((kind for kind in data if "widget-view" in kind or kind == "application/javascript"), None)
    image = next((kind for kind in _IMAGES if kind in data), None)
    if image and (foreign or widget or "text/html" not in data):
        return _render_image(image, data)
    if foreign or widget:
        subject = (
            "A live control"
            if widget and "widget" in widget
            else "A script"
            if widget
            else "A chart of another Vega version"
        )
        return f'<p class="note">{subject} of this cell needs a running notebook and is not part of the report.</p>'
    if "text/html" in data:
        return _render_own_html(data, page)
    # Render Markdown, LaTeX or plain text of an output as HTML; `data` has contents by MIME type.
    if "text/markdown" in data:
        from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

        # As nbconvert's filter, without a pilcrow after each heading.
        renderer = IPythonRenderer(escape=False, exclude_anchor_links=True)
        html = MarkdownWithMath(renderer=renderer).render(str(data["text/markdown"]))
        return f'<div class="prose">{clean_markdown(html)}</div>'
    if "text/latex" in data:
        return f'<pre class="out">{escape_html(data["text/latex"])}</pre>'
    if "text/plain" in data:
        return f'<pre class="out">{render_ansi(str(data["text/plain"]))}</pre>'
    kinds = escape_html(", ".join(data) or "nothing")
    return f'<p class="note">This output ({kinds}) cannot be shown here.</p>'


def _render_own_html(data: dict[str, Any], page: PageContent) -> str:
    text = str(data["text/html"])
    n_tags = text.count("<")
    if page.markup + n_tags > MAX_MARKUP:
        size = format_bytes(len(text))
        return (
            f'<p class="note">An output of this cell ({size} of HTML) is too large for this page: report.ipynb has it. '
            "Show fewer rows, or write a table.</p>"
        )
    page.markup += n_tags
    html, note = clean_output(text)
    if note and not html.strip():
        return f'<p class="note">{note}</p>'
    return f'<div class="out html">{html}</div>' + (f'<p class="note">{note}</p>' if note else "")


def _render_image(kind: str, data: dict[str, Any]) -> str:
    content = str(data[kind])
    if not _BASE64.fullmatch(content):
        return '<p class="note">A picture of this cell is damaged.</p>'
    words = str(data.get("text/plain", "picture"))
    return f'<img class="out" alt="{escape_html(words)}" src="data:{kind};base64,{"".join(content.split())}">'
