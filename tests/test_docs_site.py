"""The site of the documents: every page is in it, made pages come from commands and docstrings, no link is dead."""

from __future__ import annotations

import functools
import importlib
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from docs.site import build, command_reference, pages, python_reference
from tests.browser.pages import chromium_browser
from tests.test_documents import PAGES, ROOT, parse

FROM_ELSEWHERE = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=["'](?:https?:)?//[^"']*""")


@pytest.fixture(scope="module")
def laid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("laid")
    pages.lay_out(folder, has_runs=False)
    return folder


def test_every_document_is_a_page_and_in_the_menu(laid: Path) -> None:
    written = {path.relative_to(laid).as_posix() for path in laid.rglob("*.md")}
    assert {path.relative_to(ROOT).as_posix() for path in PAGES} <= written
    menu = pages.format_settings(laid, laid / "site").partition("\nnav:")[2].partition("\nvalidation:")[0]
    named = re.findall(r"[\w./-]+\.md", menu)
    assert sorted(named) == sorted(written)


def test_links_of_the_pages_lead_to_pages_and_files_that_are_there(laid: Path) -> None:
    dead = [
        (page.relative_to(laid).as_posix(), link)
        for page in laid.rglob("*.md")
        for _, link, _ in pages.LINK.findall(pages.BLOCK.sub("", page.read_text()))
        if "://" not in link and not (page.parent / link).is_file()
    ]
    assert dead == []


def test_each_command_has_its_help_and_the_commands_that_help_names_are_commands() -> None:
    made = command_reference.build_pages()
    assert {"workbench", "sizing", "runs"} <= made.keys()
    assert "## workbench sizing verify\n" in made["sizing"]
    assert "--target-users" in made["sizing"]
    lines = [line.strip() for text in made.values() for line in text.splitlines()]
    examples = [re.split(r"\s{2,}| && ", line)[0] for line in lines if re.match(r"workbench [a-z]", line)]
    assert len(examples) >= 10
    for example in examples:
        parse(shlex.split(example))


def test_the_page_of_python_names_what_the_guides_use_where_it_is_defined() -> None:
    page = python_reference.build_page(sorted(pages.GUIDE.glob("*.md")))
    names = re.findall(r"^::: (\S+)$", page, re.MULTILINE)
    assert "workbench.sizing.estimation.sizing_answer.compute_answer" in names
    assert "workbench.lore.dump" in names
    for name in names:
        module, _, last = name.rpartition(".")
        assert getattr(importlib.import_module(module), last).__doc__


@pytest.mark.parametrize(
    ("code", "names"),
    [
        ("from workbench import lore\nlore.tag(df)", {"workbench.lore.tag"}),
        ("from workbench.sizing.config import Goal\nGoal.read('p95<=2')", {"workbench.sizing.config.Goal"}),
        ("import polars as pl\npl.DataFrame()", set()),
    ],
)
def test_objects_are_found_by_how_a_block_uses_them(code: str, names: set[str]) -> None:
    assert set(python_reference.find_objects(code)) == names


def test_a_folder_that_holds_something_else_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("kept")
    done = subprocess.run(
        [sys.executable, "-m", "docs.site.build", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "something else" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


def test_the_lock_is_pinned_hashed_and_names_no_host() -> None:
    text = build.LOCK.read_text()
    assert "://" not in text
    pins = re.findall(r"^[a-z0-9-]+==\S+", text, re.MULTILINE)
    assert len(pins) >= 10
    assert text.count("==") >= len(pins)
    assert text.count("--hash=sha256:") >= len(pins)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment") / "docs"
    try:
        build.make_environment(folder)
    except subprocess.CalledProcessError:
        pytest.skip("no package index can be reached")
    return folder


@pytest.fixture(scope="module")
def site(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, with a run whose report says one word."""
    runs = tmp_path_factory.mktemp("runs")
    (runs / "fleet" / "1").mkdir(parents=True)
    (runs / "index.html").write_text('<a href="fleet/1/report.html">one report</a>')
    (runs / "fleet" / "1" / "report.html").write_text("<p>measured</p>")
    (runs / "fleet" / "1" / "run.json").write_text("{}")
    out = tmp_path_factory.mktemp("site")
    assert build.build_site(out, runs=runs, environment=environment) == 0
    return out


@pytest.mark.network
def test_the_site_has_all_pages_and_loads_nothing_from_elsewhere(site: Path) -> None:
    for page in ("index", "docs/tutorials/launch", "docs/guide/sizing", "made/commands/sizing", "made/python/index"):
        assert (site / f"{page}.html").is_file()
    found = {name for path in site.rglob("*.html") for name in FROM_ELSEWHERE.findall(path.read_text())}
    assert found == set()
    reports = site / pages.REPORTS
    assert sorted(path.name for path in reports.rglob("*") if path.is_file()) == ["index.html", "report.html"]


@pytest.mark.network
@pytest.mark.parametrize(
    ("text", "said"),
    [("[gone](guide/gone.md)", "guide/gone.md"), ("[part](guide/sizing.md#no-such-part)", "no-such-part")],
)
def test_a_dead_link_or_anchor_ends_the_build(
    environment: Path, tmp_path: Path, text: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    laid = tmp_path / "pages"
    pages.lay_out(laid, has_runs=False)
    with (laid / "docs" / "glossary.md").open("a") as page:
        page.write(f"\n{text}\n")
    settings = tmp_path / "mkdocs.yml"
    settings.write_text(pages.format_settings(laid, tmp_path / "site"))
    assert build.run_builder(environment / "bin" / "mkdocs", settings) == 1
    assert said in capfd.readouterr().err


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.network
@pytest.mark.browser
@pytest.mark.parametrize("place", ["disk", "server"])
def test_a_page_is_searched_from_a_disk_and_from_a_server_without_another_host(
    site: Path, served: str, place: str
) -> None:
    root = f"{site.as_uri()}/" if place == "disk" else served
    strangers, errors = [], []
    with chromium_browser() as browser:
        page = browser.new_page()
        page.on("request", lambda one: strangers.append(one.url) if not one.url.startswith((root, "data:")) else None)
        page.on("pageerror", lambda one: errors.append(str(one)))
        page.goto(f"{root}made/gallery.html")
        frame = page.frame_locator(".gallery-frame")
        frame.get_by_text("one report").click()
        frame.get_by_text("measured").wait_for()
        page.locator("input[name=query]").click()
        page.keyboard.type("nightly")
        hit = page.locator(".md-search-result__link[href*='nightly-jobs']").first
        hit.wait_for()
        hit.click()
        page.locator("h1", has_text="nightly jobs").wait_for()
    assert (strangers, errors) == ([], [])
