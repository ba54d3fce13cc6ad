"""One page a run: the answer first, then the notebook, then where it came from; no network, ever.

The page is made by nbconvert from the executed notebook with a template of our own. Scripts run only when they carry
the page's own nonce, and the page may load nothing from anywhere: what a log or an error message smuggles in stays
text.
"""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__, files, limits, redaction
from workbench.display import bullets, chip_html, headline, key_numbers_html, next_steps_html, table
from workbench.errors import InputError
from workbench.formats import moment

if TYPE_CHECKING:
    from workbench.outputs import Page

__all__ = ["bullets", "headline", "table", "write_gallery", "write_report"]

TEMPLATES = Path(__file__).parent / "templates"
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def write_report(run_folder: str | Path, record: dict[str, Any] | None = None) -> Path:
    """Make report.html of a run folder's report.ipynb and run.json.

    Parameters
    ----------
    run_folder
        The folder of one run; its notebook may have failed on the way, the page then says where.
    record
        What its run.json is about to say, when that is not written yet.

    Returns
    -------
    Path
        The page, written whole or not at all.

    Raises
    ------
    InputError
        The folder holds no run, or its notebook is missing or unreadable.
    """
    from workbench import runs

    folder = Path(run_folder)
    record = runs.load(folder).record if record is None else redaction.clean(record)
    notebook = read_notebook(folder / "report.ipynb")
    return files.write_text(folder / "report.html", page_html(notebook, record))


def write_gallery(folder: str | Path) -> Path:
    """Make index.html over the reports below a folder; see `workbench.gallery`."""
    from workbench import gallery

    return gallery.write_gallery(folder)


def read_notebook(path: Path) -> Any:
    """The notebook at `path`, in the current notebook format."""
    import nbformat

    try:
        text = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
        if _SURROGATE.search(text):
            # Half of a pair of code units, which no page can hold.
            nbformat.writes(notebook).encode()
        return notebook
    except OSError as error:
        raise InputError(
            "no executed notebook", where=path, found=error.strerror, do="run the notebook again"
        ) from error
    except Exception as error:
        raise InputError(
            "not a readable notebook", where=path, found=f"{type(error).__name__}: {error}"[:200]
        ) from error


def page_html(notebook: Any, record: dict[str, Any]) -> str:
    """The page as text; `notebook` is changed on the way."""
    from nbconvert.exporters.html import HTMLExporter

    from workbench.outputs import prepare
    from workbench.renderer import vega_bundle
    from workbench.sanitizing import clean_markdown

    nonce = secrets.token_urlsafe(18)
    # Only what stands behind a token that nobody could foresee is put into the page as it is.
    token = secrets.token_hex(16)
    page = prepare(notebook, record, token)
    exporter = HTMLExporter(template_name="report", extra_template_basedirs=[str(TEMPLATES)], exclude_anchor_links=True)
    exporter.register_filter("clean_markdown", clean_markdown)
    body, _ = exporter.from_notebook_node(notebook, resources={"page": _page_values(page, record, nonce, token)})
    for name, fragment in page.fragments.items():
        body = body.replace(f"{token}:{name};", fragment)
    scripts = [f'<script nonce="{nonce}">{read_template("report.js")}</script>']
    if page.charts:
        scripts.insert(0, f'<script nonce="{nonce}">{vega_bundle()}</script>')
    head = f'<style>{read_template("page.css")}</style><script nonce="{nonce}">{read_template("mode.js")}</script>'
    return whole_text(
        body.replace(f"{token}:head;", head).replace(f"{token}:tail;", page.specs_html() + "".join(scripts))
    )


def _page_values(page: Page, record: dict[str, Any], nonce: str, token: str) -> dict[str, Any]:
    from workbench.provenance import provenance_html

    said = page.headline or {}
    return {
        "policy": policy(nonce),
        "version": __version__,
        "question": said.get("question") or page.title or record["title"],
        "area": record["area"],
        "ended": moment(record.get("ended_at") or record.get("started_at")),
        "answer": said.get("answer") or record.get("answer"),
        "reasons": said.get("reasons") or record.get("reasons") or [],
        "chip": chip_html(said.get("verdict") or record.get("verdict"), record["status"]),
        "thresholds": limits.page(record.get("thresholds")),
        "key_numbers": key_numbers_html(said.get("key_numbers") or []),
        "next_steps": next_steps_html(said.get("next_steps")),
        "first_chart": f"{token}:first;" if "first" in page.fragments else "",
        "failure": page.failure,
        "code_cells": page.code_cells,
        "provenance": provenance_html(record),
        "head_token": f"{token}:head;",
        "tail_token": f"{token}:tail;",
    }


def whole_text(text: str) -> str:
    """Text that can be written: half characters, which broken logs and JSON may hold, become a sign."""
    return text.encode("utf-8", "replace").decode("utf-8")


def policy(nonce: str) -> str:
    """The page's content security policy: nothing from anywhere, own scripts only, and no code made of text."""
    return (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'unsafe-inline'; img-src data:; "
        "font-src data:; base-uri 'none'; form-action 'none'"
    )


def read_template(name: str) -> str:
    """One of the package's style sheets or scripts."""
    return (TEMPLATES / name).read_text(encoding="utf-8")
