from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import polars as pl
import pytest
from nbformat import v4

from tests.browser import samples
from workbench import report
from workbench.charts import theme
from workbench.charts.renderer import CHART_MIME
from workbench.core.errors import ConfigError, InputError
from workbench.core.tables import Column, Table
from workbench.report import page as report_page
from workbench.report.cells import clean_markdown, clean_output, prepare_page
from workbench.runs import run_folder

ATTACKS = [
    "control \x00\x1b[2J signs",
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "<svg/onload=alert(1)>",
    "<iframe src='https://example.org'></iframe>",
    "<a href='javascript:alert(1)'>x</a>",
    "<!--<script>",
    "</pre></section></main><script>alert(1)</script>",
    "'\"><b onmouseover=alert(1)>",
]


class Tags(HTMLParser):
    """What a browser would see: elements with their attributes, and no text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def page_of(tmp_path: Path, cells: list[Any], **ending: Any) -> str:
    return report_page.write_report(samples.write_run(tmp_path, cells, **ending)).read_text(encoding="utf-8")


def body_of(html: str) -> str:
    """The page without the scripts, styles and data of its own."""
    return re.sub(r"<(script|style)\b[^>]*>.*?</\1>", "", html, flags=re.DOTALL)


def assert_harmless(html: str) -> None:
    nonce = re.search(r"'nonce-([^']+)'", html)
    assert nonce
    for tag, attributes in Tags(html).found:
        assert tag not in ("iframe", "object", "embed", "base", "link", "form"), tag
        assert not any(name.startswith("on") for name in attributes), (tag, attributes)
        assert not (attributes.get("href") or "").lower().startswith("javascript"), attributes
        assert (attributes.get("src") or "data:").startswith("data:"), attributes
        if tag == "script":
            assert attributes.get("nonce") == nonce[1] or attributes.get("type") == "application/json"


def error_output(text: str) -> Any:
    return v4.new_output("error", ename="ValueError", evalue=text, traceback=[f"\x1b[31mValueError\x1b[0m: {text}"])


@pytest.fixture(autouse=True)
def own_theme() -> None:
    theme.enable_theme()


def said(**changes: Any) -> Any:
    return report.headline(
        **{"answer": "Twice as fast.", "verdict": "valid", "key_numbers": [("Queries", 22)], **changes}
    )


def test_the_question_the_answer_and_the_first_chart_come_first(tmp_path: Path) -> None:
    numbers = [("Speedup", 2.0, "×", "90 % interval 1.8 to 2.2"), ("Failed", None)]
    cells = [
        v4.new_markdown_cell("# How *fast* is `it`?\n\nSome words."),
        v4.new_code_cell("a", outputs=[samples.shown(said(key_numbers=numbers))]),
        v4.new_code_cell("b", outputs=[samples.shown(samples.all_pieces()["forest"])]),
        v4.new_markdown_cell("## Later"),
    ]
    html = body_of(page_of(tmp_path, cells, verdict="valid"))
    hero, rest = html.split("</section>", 1)
    assert "<h1>How fast is it?</h1>" in hero
    assert "Twice as fast." in hero
    assert "Twice as fast." not in rest, "said once"
    assert 'wb-valid">valid<' in hero
    assert ">2 <span" in hero
    assert "90 % interval 1.8 to 2.2" in hero
    assert "<dd>–</dd>" in hero, "missing is not 0"
    assert 'id="chart-0"' in hero
    assert 'id="chart-0"' not in rest
    assert rest.index("Some words.") < rest.index("Later") < rest.index("Provenance")


@pytest.mark.parametrize(("beside", "kept"), [("", False), ("What follows from it.", True)])
def test_a_heading_whose_answer_stands_at_the_top_does_not_stand_alone(beside: str, kept: bool, tmp_path: Path) -> None:
    cells = [
        v4.new_markdown_cell("# How fast is it?"),
        v4.new_markdown_cell(f"## The answer\n\n{beside}".strip()),
        v4.new_code_cell("a", outputs=[samples.shown(said())]),
        v4.new_markdown_cell("## Later"),
    ]
    html = body_of(page_of(tmp_path, cells, verdict="valid"))
    assert ("The answer" in html.split("</section>", 1)[1]) == kept
    assert "Later" in html


def test_an_invalid_run_says_why(tmp_path: Path) -> None:
    cells = [v4.new_markdown_cell("# Why?")]
    html = page_of(tmp_path, cells, verdict="invalid", reasons=["3 of 5 runs failed", "too <few>"], answer="Unclear.")
    assert 'wb-invalid">invalid<' in html
    assert "3 of 5 runs failed; too &lt;few&gt;" in html
    assert "Unclear." in html


def test_a_headline_refuses_what_would_mislead() -> None:
    with pytest.raises(ConfigError, match="reason"):
        said(verdict="invalid")
    with pytest.raises(ConfigError, match="unknown verdict"):
        said(verdict="good")
    with pytest.raises(ConfigError, match="key number"):
        said(key_numbers=[("only a label",)])
    with pytest.raises(ConfigError, match="too many"):
        said(key_numbers=[("n", 1)] * 7)


def test_a_headline_reads_well_without_a_page() -> None:
    data = said(key_numbers=[("Saved", 12.5, "s", "of 40 s")])._repr_mimebundle_()
    assert data["text/plain"].splitlines() == ["Twice as fast.", "Verdict: valid", "Saved: 12.5 s (of 40 s)"]
    assert "Twice as fast." in data["text/html"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_untrusted_text_stays_text_everywhere(tmp_path: Path, attack: str) -> None:
    frame = pl.DataFrame(
        {"operator": [attack, "b"], "speedup_ratio": [1.0, 2.0], "ci_low": [0.5, 1.0], "ci_high": [2.0, 3.0]}
    )
    chart = samples.charts.forest(
        frame, title=attack, label="operator", estimate="speedup_ratio", low="ci_low", high="ci_high", subtitle=attack
    )
    numbers = [(attack, attack, attack, attack)]
    cells = [
        v4.new_markdown_cell(f"# {attack}\n\n{attack}\n\n[x](javascript:alert(1)) ![y](https://example.org/y.png)"),
        v4.new_code_cell(attack, outputs=[samples.shown(said(answer=attack, reasons=[attack], key_numbers=numbers))]),
        v4.new_code_cell("c", outputs=[samples.shown(chart)]),
        v4.new_code_cell("d", outputs=[samples.shown(report.table(frame, caption=attack))]),
        v4.new_code_cell(
            "e", outputs=[v4.new_output("stream", text=attack), v4.new_output("stream", name="stderr", text=attack)]
        ),
        v4.new_code_cell(
            "f",
            outputs=[
                v4.new_output("display_data", data={"text/plain": attack}),
                v4.new_output("display_data", data={"text/html": attack}),
            ],
        ),
        v4.new_code_cell(
            "g",
            outputs=[
                v4.new_output("display_data", data={"text/markdown": attack}),
                v4.new_output("display_data", data={"image/png": attack}),
            ],
        ),
        v4.new_code_cell("h", outputs=[error_output(attack)]),
    ]
    failure = {"cell_number": 7, "source": "h", "error_name": attack, "error": attack}
    assert_harmless(page_of(tmp_path, cells, status="failed", failure=failure, reasons=[attack], answer=attack))


@pytest.mark.parametrize("attack", [attack for attack in ATTACKS if "<" in attack])
def test_tables_and_headlines_escape_by_themselves(attack: str) -> None:
    frame = pl.DataFrame({"name": [attack]}).with_columns(pl.lit(1).alias(attack))
    declared = Table("t", "T.", (), (Column("name", "str", attack),))
    numbers = [(attack, attack, attack, attack)]
    for html in (
        report.table(frame, declared, caption=attack).html,
        said(answer=attack, reasons=[attack], key_numbers=numbers).html,
    ):
        assert attack not in html
        assert {tag for tag, _ in Tags(html).found} <= {
            *["div", "table", "caption", "small", "thead", "tbody", "tr", "th", "td", "p", "span", "dl", "dt", "dd"]
        }


def test_run_facts_from_outside_stay_text(tmp_path: Path) -> None:
    folder = samples.write_run(tmp_path, [v4.new_markdown_cell("# Q?")])
    record = json.loads((folder / "run.json").read_text())
    bad = "<script>alert(1)</script>\ud800"
    record |= {
        "command": bad,
        "config": {bad: bad},
        "inputs": [{"path": bad, "bytes": 1, "sha256": bad}],
        "git_commit": bad,
    }
    record["tables"], record["versions"], record["host"]["cpu_model"] = [{"name": bad, "rows": 3}], {bad: bad}, bad
    (folder / "run.json").write_text(json.dumps(record))
    html = report_page.write_report(folder).read_text()
    assert_harmless(html)
    assert html.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 8


def test_nothing_in_the_page_loads_from_elsewhere(tmp_path: Path) -> None:
    cells = [
        v4.new_markdown_cell("# Q?\n\n$x^2$"),
        v4.new_code_cell("a", outputs=[samples.shown(samples.all_pieces()["bars"])]),
    ]
    html = page_of(tmp_path, cells)
    assert "default-src 'none'" in html
    assert "unsafe-eval" not in html
    for word in ("cdn.", "jsdelivr", "unpkg", "cdnjs", "mathjax", "require.min", "googleapis", "mermaid"):
        assert word not in html.lower(), word
    assert not re.search(r"""(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""", html)
    assert "@import" not in html


def test_ten_charts_share_one_bundle_and_stay_small(tmp_path: Path) -> None:
    pieces = list(samples.all_pieces().values())
    outputs = [samples.shown(chart) for chart in (pieces * 2)[:10]]
    html = page_of(tmp_path, [v4.new_markdown_cell("# Q?"), v4.new_code_cell("charts", outputs=outputs)])
    data = sum(
        len(match) for match in re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', html, re.DOTALL)
    )
    assert html.count('class="chart"') == 10
    assert len(html.encode()) - data < 3_000_000
    assert sum(1 for tag, _ in Tags(html).found if tag == "script") == 1 + 1 + 10 + 1 + 3, (
        "modes, specs, bundle, four of ours"
    )


def test_a_page_without_charts_carries_no_vega(tmp_path: Path) -> None:
    page = page_of(tmp_path, [v4.new_markdown_cell("# Q?")])
    assert 'id="vega-bundle"' not in page
    assert len(page) < 60_000


def test_a_failed_run_shows_its_error_on_top_and_links_to_the_cell(tmp_path: Path) -> None:
    banner = v4.new_markdown_cell(
        "An Exception was encountered at 'In [2]'", metadata={"tags": ["papermill-error-cell-tag"]}
    )
    cells = [
        banner,
        v4.new_markdown_cell("# Q?"),
        v4.new_code_cell("one()", execution_count=1),
        v4.new_code_cell("two()", outputs=[error_output("broken")]),
        v4.new_code_cell("three()"),
    ]
    failure = {"cell_number": 2, "source": "two()", "error_name": "ValueError", "error": "\x1b[31mbroken\x1b[0m"}
    html = body_of(page_of(tmp_path, cells, status="failed", failure=failure))
    assert "An Exception was encountered" not in html
    assert "ValueError: broken" in html
    assert "\x1b" not in html
    assert 'href="#cell-2"' in html
    assert re.search(r'<section class="cell failed" id="cell-2">\s*<details class="code" open', html)
    assert html.count("Not run: an earlier cell failed.") == 1
    assert 'wb-failed">failed<' in html


def test_a_dead_kernel_without_a_failing_cell_still_gives_a_banner(tmp_path: Path) -> None:
    failure = {"cell_number": None, "source": None, "error_name": "DeadKernelError", "error": "Kernel died"}
    html = page_of(tmp_path, [v4.new_markdown_cell("# Q?"), v4.new_code_cell("a")], status="failed", failure=failure)
    assert "DeadKernelError: Kernel died" in html
    assert 'id="to-failure"' not in body_of(html)


def test_live_controls_scripts_and_other_vega_versions_leave_a_picture_or_a_note(tmp_path: Path) -> None:
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
    kinds: list[dict[str, Any]] = [
        {"application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text/plain": "Slider()"},
        {"application/javascript": "alert(1)"},
        {"application/vnd.vegalite.v5+json": {"mark": "bar"}},
        {"application/vnd.vegalite.v5+json": {"mark": "bar"}, "image/png": dot},
        {"application/x-unknown": "?"},
    ]
    outputs = [v4.new_output("display_data", data=data) for data in kinds]
    html = body_of(page_of(tmp_path, [v4.new_markdown_cell("# Q?"), v4.new_code_cell("a", outputs=outputs)]))
    assert "A live control of this cell" in html
    assert "A script of this cell" in html
    assert "A chart of another Vega version" in html
    assert html.count("<img") == 1
    assert "cannot be shown here" in html
    assert "Slider()" not in html


def test_terminal_colours_are_kept_and_streams_wrap(tmp_path: Path) -> None:
    html = page_of(
        tmp_path,
        [
            v4.new_markdown_cell("# Q?"),
            v4.new_code_cell("a", outputs=[v4.new_output("stream", text="\x1b[31mred\x1b[0m")]),
        ],
    )
    assert '<span class="ansi-red-fg">red</span>' in html


def test_provenance_holds_what_is_needed_to_do_it_again(tmp_path: Path) -> None:
    source = tmp_path / "log.json"
    source.write_text("{}")
    folder = samples.write_run(tmp_path, [v4.new_markdown_cell("# Q?")])
    run = run_folder.load_run(folder)
    run.add_input(source)
    html = report_page.write_report(folder).read_text()
    box = html[html.index('id="provenance"') :]
    entry = run_folder.load_run(folder).record["inputs"][0]
    for fact in (run.run_id, entry["sha256"], "2 bytes", "top_operators", "workbench", "Machine", "Versions"):
        assert fact in box, fact


def test_tables_show_units_alignment_nulls_and_how_many_rows_there_are() -> None:
    declared = Table(
        "runs", "Runs.", (), (Column("duration", "float", "Wall <time>.", unit="s"), Column("name", "str", "Name."))
    )
    frame = pl.DataFrame({"name": ["a", "b", "c"], "duration": [1.5, None, 1234.0], "read_bytes": [10_000, None, 3]})
    shown = report.table(frame, declared, caption="All & more", limit=2)._repr_mimebundle_()
    html = shown["text/html"]
    assert "All &amp; more" in html
    assert "2 of 3 rows" in html
    assert '<th scope="col" class="num" data-column="duration" title="Wall &lt;time&gt;.">duration (s)</th>' in html
    assert '<td class="num">10,000</td>' in html
    assert '<td class="num">–</td>' in html
    assert "1,234" not in html
    assert "2 of 3 rows" in shown["text/plain"]
    with pytest.raises(InputError):
        report.table(frame, limit=0)


def test_a_folded_table_is_opened_by_its_caption() -> None:
    shown = report.table(pl.DataFrame({"a": [1]}), caption="A & b", folded=True)
    assert shown.html.startswith('<details class="rows"><summary>A &amp; b</summary>')
    assert "<td" in shown.html
    assert "details" not in report.table(pl.DataFrame({"a": [1]}), caption="A & b").html


def test_wide_and_empty_tables_are_tables_too() -> None:
    assert "0 rows" in report.table(pl.DataFrame({"a_s": []}, schema={"a_s": pl.Float64})).html
    assert report.table(pl.DataFrame({f"c{index}": [1] for index in range(60)})).html.count("<td") == 60


def test_a_folder_without_a_run_or_a_notebook_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        report_page.write_report(tmp_path)
    folder = samples.write_run(tmp_path, [v4.new_markdown_cell("# Q?")])
    (folder / "report.ipynb").write_text("{ half")
    with pytest.raises(InputError, match="not a readable notebook"):
        report_page.write_report(folder)
    (folder / "report.ipynb").unlink()
    with pytest.raises(InputError, match="no executed notebook"):
        report_page.write_report(folder)
    assert not (folder / "report.html").exists()


def test_markdown_keeps_what_prose_needs() -> None:
    html = '<h2 id="a">A</h2><p><b>b</b> <code>c</code></p><table><tbody><tr><td>1</td></tr></tbody></table>'
    assert clean_markdown(html) == html
    assert clean_markdown('<a href="docs/guide.md">g</a>') == '<a href="docs/guide.md">g</a>'
    assert "src" not in clean_markdown('<img src="https://example.org/a.png" alt="a">')
    assert "src" in clean_markdown('<img src="data:image/png;base64,AAAA" alt="a">')


@pytest.mark.parametrize(
    "attack",
    [
        "<div onclick = 'x'>",
        '<img src="http://example.org/a.png">',
        "<script >x</script >",
        "<LINK rel=x href=y>",
        '<b title="a" ONCLICK=x>',
    ],
)
def test_html_of_libraries_loses_scripts_handlers_and_addresses(attack: str) -> None:
    cleaned, _ = clean_output(f"<p>kept</p>{attack}")
    assert "kept" in cleaned
    assert not re.search(r"on\w+\s*=|http:|<script|<link", cleaned, re.IGNORECASE)


def test_a_lifted_token_cannot_be_forged_from_a_cell() -> None:
    notebook = v4.new_notebook(
        cells=[
            v4.new_markdown_cell("# Q?\n\ntoken:f0;"),
            v4.new_code_cell("a", outputs=[v4.new_output("stream", text="x")]),
        ]
    )
    page = prepare_page(notebook, {"status": "succeeded"}, "another-token")
    assert notebook.cells[1].metadata["workbench"]["fragment"] == "another-token:f0;"
    assert page.title == "Q?"


@pytest.mark.notebook
def test_an_executed_notebook_shows_its_charts_in_any_viewer(tmp_path: Path) -> None:
    """Papermill and stock nbconvert accept it; viewers that know no Vega show the picture."""
    code = (
        "import polars as pl\nfrom workbench import charts\ncharts.setup()",
        "table = pl.DataFrame({'name': ['a', 'b'], 'time_s': [2.0, 1.0]})\n"
        "charts.bars(table, title='t', label='name', value='time_s')",
    )
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in code], metadata=kernel)
    nbformat.write(notebook, tmp_path / "in.ipynb")
    script = (
        "import os, sys, papermill\nos.environ['WORKBENCH_RUN_DIR'] = sys.argv[3]\n"
        "papermill.execute_notebook(sys.argv[1], sys.argv[2], progress_bar=False)"
    )
    paths = [str(tmp_path / name) for name in ("in.ipynb", "out.ipynb", "run")]
    subprocess.run([sys.executable, "-c", script, *paths], check=True, capture_output=True, timeout=200)
    executed = nbformat.read(tmp_path / "out.ipynb", as_version=4)
    nbformat.validate(executed)
    assert executed.cells[0].outputs == [], "headless the first cell shows nothing"
    data = executed.cells[1].outputs[0].data
    assert {CHART_MIME, "image/png", "text/plain"} <= set(data)

    from nbconvert import HTMLExporter

    html, _ = HTMLExporter(template_name="basic").from_notebook_node(executed)
    assert 'src="data:image/png;base64,' in html


@pytest.mark.notebook
def test_a_live_kernel_brings_its_own_vega_once(tmp_path: Path) -> None:
    code = (
        "from workbench import charts\ncharts.setup()",
        "import polars as pl\ntable = pl.DataFrame({'name': ['a'], 'time_s': [2.0]})\n"
        "charts.bars(table, title='t', label='name', value='time_s')",
    )
    notebook = v4.new_notebook(cells=[v4.new_code_cell(source) for source in code])
    script = (
        "import os, sys, nbformat\nfrom nbclient import NotebookClient\n"
        "os.environ.pop('WORKBENCH_RUN_DIR', None)\n"
        "book = nbformat.read(sys.argv[1], 4)\nNotebookClient(book, kernel_name='python3').execute()\n"
        "nbformat.write(book, sys.argv[1])"
    )
    nbformat.write(notebook, tmp_path / "live.ipynb")
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "live.ipynb")], check=True, capture_output=True, timeout=200
    )
    first, second = nbformat.read(tmp_path / "live.ipynb", 4).cells
    assert len(first.outputs[0].data["text/html"]) > 500_000
    chart = second.outputs[0].data
    assert len(chart["text/html"]) < 20_000
    assert "image/png" in chart
    assert CHART_MIME in chart, "a report can be made of a notebook that was run live"
