"""What the shared floor reads and shows: run folders, notebooks, parameters, thresholds; HTML made harmless."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from bs4 import BeautifulSoup
from hypothesis import strategies as st

from tests.browser import samples
from tests.fuzz.fuzzing import fuzz, harmless, scratch
from tests.fuzz.mutations import HOSTILE_TEXTS, damaged, json_documents
from tests.fuzz.test_sizing import YAMLS
from workbench.charts import renderer
from workbench.console import terminal
from workbench.core.errors import WorkbenchError
from workbench.execution import discovery, parameters
from workbench.report import cells, gallery, page
from workbench.runs import run_folder as runs_run_folder
from workbench.runs import threshold_gate

pytestmark = pytest.mark.slow

NOTEBOOKS = sorted((Path(__file__).parents[2] / "notebooks").glob("[0-9]*.ipynb"))
CELL = "top: int = 10  # how many\nlog: str | None = None  # a path\nkind: Literal['a', 'b'] = 'a'  # which\n"


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a notebook of a few cells, and no charts: drawing them would take the time of all the others."""
    from nbformat import v4

    cells = [
        v4.new_markdown_cell("# How fast?\n\n<b>in</b>"),
        v4.new_code_cell(
            "1", outputs=[v4.new_output("display_data", data={"text/html": "<p>a</p>", "text/plain": "a"})]
        ),
        v4.new_code_cell("2", outputs=[v4.new_output("stream", text="\x1b[31mred\x1b[0m\n")]),
    ]
    return samples.write_run(tmp_path_factory.mktemp("runs"), cells, verdict="valid", answer="It is.")


@fuzz(120, data=st.data())
def test_a_damaged_record_of_a_run_is_refused_or_shown(data: st.DataObject, run_folder: Path) -> None:
    record = json.loads((run_folder / runs_run_folder.RECORD_FILE).read_text())
    with scratch() as place:
        folder = place / "area" / "run"
        folder.mkdir(parents=True)
        (folder / runs_run_folder.RECORD_FILE).write_bytes(data.draw(json_documents([record])))
        (folder / "report.html").write_text("<h1>a</h1>")
        harmless(lambda: runs_run_folder.load_run(folder))
        told: list[WorkbenchError] = []
        found = harmless(lambda: runs_run_folder.list_run_folders(place, unreadable=told.append))
        assert found is not None
        assert len(found) + len(told) == 1
        harmless(lambda: gallery.write_gallery(place), writes=place)


@fuzz(40, data=st.data())
def test_a_report_is_made_of_any_notebook_that_is_one(data: st.DataObject, run_folder: Path) -> None:
    executed = json.loads((run_folder / "report.ipynb").read_text())
    with scratch() as place:
        folder = place / "run"
        folder.mkdir()
        (folder / runs_run_folder.RECORD_FILE).write_bytes((run_folder / runs_run_folder.RECORD_FILE).read_bytes())
        (folder / "report.ipynb").write_bytes(data.draw(json_documents([executed], most=2)))
        made = harmless(lambda: page.write_report(folder), writes=folder)
        if made is not None:
            assert "Content-Security-Policy" in made.read_text()


@fuzz(60, content=json_documents([json.loads(path.read_text()) for path in NOTEBOOKS[:2]], most=2))
def test_a_damaged_notebook_is_refused_or_has_parameters(content: bytes) -> None:
    with scratch() as place:
        path = place / "a.ipynb"
        path.write_bytes(content)
        notebook = harmless(lambda: discovery.read_notebook(path))
        if notebook is not None:
            harmless(lambda: parameters.read_parameters(notebook, path))


@fuzz(
    150, source=damaged([CELL.encode(), b"a = 1\n", b"a: list[int] = [1]\n", b"(" * 300, b"a: int = " + b"9" * 5_000])
)
def test_a_damaged_cell_of_parameters_is_declared_or_refused(source: bytes) -> None:
    text = source.decode("utf-8", "replace")
    declared = harmless(lambda: parameters.parse_parameters(text))
    assert declared is None or all(item.name.isidentifier() for item in declared)


@fuzz(150, content=damaged([*YAMLS, b"top: 5\nlog: a\n"]))
def test_a_damaged_file_of_parameters_is_values_or_refused(content: bytes) -> None:
    declared = parameters.parse_parameters(CELL)
    with scratch() as place:
        path = place / "p.yaml"
        path.write_bytes(content)
        given = harmless(lambda: parameters.read_values_file(path))
        if given is not None:
            harmless(lambda: parameters.resolve_values(declared, given))


THRESHOLDS = b"speedup:\n- {key: verdict, equals: valid}\n- {table: factors, column: factor, at_least: 1.5}\n"


@fuzz(150, content=damaged([THRESHOLDS, *YAMLS]))
def test_damaged_thresholds_are_rules_or_refused(content: bytes) -> None:
    with scratch() as place:
        path = place / "t.yaml"
        path.write_bytes(bytes(content))
        harmless(lambda: threshold_gate.load_thresholds(path))


KINDS = [int, float, bool, str, list[int], int | None, list[str] | None]


@fuzz(
    200,
    kind=st.sampled_from(KINDS),
    text=st.one_of(st.text(max_size=20), st.sampled_from(HOSTILE_TEXTS), st.just("[" * 5_000)),
)
def test_a_text_becomes_a_value_of_its_type_or_a_value_error(kind: Any, text: str) -> None:
    try:
        harmless(lambda: parameters.parse_value(kind, text))
    except ValueError:
        return  # told with the parameter's name by who asked


PIECES = [
    "<script>",
    "</script>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<a href='javascript:alert(1)'>",
]
PIECES += ["<a href=' jAvAsCrIpT:alert(1)'>", "<style>", "@import url(//e)", "</style>", "<iframe srcdoc='<script>'>"]
PIECES += ["<!--", "-->", "<math><mi//xlink:href='data:x,<script>'>", "<p", " onclick=x ", ">", "<table><td>", "'", '"']
PIECES += ["<form action=javascript:x>", "<base href=//e>", "<meta http-equiv=refresh content='0;url=//e'>", "&lt;"]
PIECES += [
    "<object data=x>",
    "<template><script>",
    "\x00",
    "<noscript>",
    "<svg><style><img src=x onerror=a>",
    "text",
    "<b>",
]
PIECES += ["<a href=data:text/html,x>", "<input autofocus onfocus=a>", "<p style='background:url(//e)'>"]
PIECES += ["<a href='java&#x09;script:alert(1)'>", "<svg><a xlink:href='javascript:alert(1)'>"]
markup = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=6)), max_size=12).map("".join)
_ACTIVE = {"script", "iframe", "object", "embed", "base", "meta", "link", "form", "template", "frame", "applet"}


def assert_inert(html: str) -> None:
    for element in BeautifulSoup(html, "html.parser").find_all(True):
        assert element.name.lower() not in _ACTIVE, html
        for name, value in element.attrs.items():
            text = re.sub(r"[\x00-\x20]+", "", str(value)).lower()
            assert not name.lower().startswith("on"), html
            assert not text.startswith(("javascript:", "vbscript:", "data:text")), html


@fuzz(250, html=markup)
def test_cleaned_html_holds_nothing_that_runs_or_loads(html: str) -> None:
    harmless(lambda: assert_inert(cells.clean_markdown(html)))
    harmless(lambda: assert_inert(cells.clean_output(html)[0]))
    harmless(lambda: assert_inert(cells.render_ansi(html)))


@fuzz(
    150,
    value=st.recursive(st.one_of(st.text(), st.integers(), st.none(), markup), lambda one: st.lists(one, max_size=3)),
)
def test_json_in_a_page_ends_no_script_and_is_read_as_it_was(value: Any) -> None:
    text = harmless(lambda: renderer.format_script_json(value))
    assert text is not None
    assert "</" not in text.lower()
    assert "<!--" not in text
    assert json.loads(text) == json.loads(json.dumps(value))


@fuzz(150, text=st.one_of(st.text(), st.sampled_from(HOSTILE_TEXTS)))
def test_nothing_that_is_said_steers_a_terminal(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    terminal.print_text(text.encode("utf-8", "replace").decode())
    said = capsys.readouterr().out
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", said)


def test_the_sample_notebook_of_these_tests_is_whole(run_folder: Path) -> None:
    nbformat.validate(nbformat.read(run_folder / "report.ipynb", as_version=4))
    assert page.write_report(run_folder).is_file()
