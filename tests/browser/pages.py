"""A page as a reader meets it: opened from disk with networking off, and asked what it really drew.

`check_report` is the whole examination of one report; the other functions are its parts and the reader's hands.
Marks are counted in the drawing and compared with what the page's own data implies.
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

WAIT_MS = 60_000
PATHS = ("line", "area", "trail")
POSITIONS = ("x", "y", "x2", "y2", "color", "fill", "stroke", "size", "opacity")
LABEL = "index => document.querySelector(`#chart-${index} [role=graphics-document]`)?.getAttribute('aria-label')"
COUNT_CHILDREN = "(figure, name) => figure.querySelectorAll(`.canvas svg g.role-mark.${name} > *`).length"


@dataclass
class Watched:
    """A page with everything that it said and asked for."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def heard(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self.errors.append(message.text)

    def asked(self, request: Request) -> None:
        self.requests.append(request.url)

    def open(self, path: Path) -> Page:
        """Open a file and wait until its charts stand."""
        self.page.goto(path.resolve().as_uri())
        wait_drawn(self.page)
        return self.page

    def assert_quiet(self) -> None:
        """Nothing went wrong, and nothing was fetched but files and what the page itself holds."""
        assert not self.errors, f"console errors: {self.errors}"
        strangers = [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]
        assert not strangers, f"the page asked for {strangers}"


@contextlib.contextmanager
def chromium_browser() -> Iterator[Browser]:
    """A headless Chromium of this system."""
    names = ("chromium", "chromium-browser", "google-chrome")
    path = next(filter(None, map(shutil.which, names)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def watched(browser: Browser, *, width: int = 1280, scheme: str = "light") -> Iterator[Watched]:
    """A page without a network whose words and requests are kept."""
    context = browser.new_context(offline=True, viewport={"width": width, "height": 900}, color_scheme=scheme)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    seen = Watched(page)
    page.on("console", seen.heard)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", seen.asked)
    yield seen
    context.close()


def wait_drawn(page: Page, draws: int = 1) -> None:
    """Wait until all charts were drawn at least `draws` times and none is being drawn."""
    if page.query_selector("figure.chart"):
        done = "draws => window.workbench?.draws >= draws && document.documentElement.dataset.charts === 'drawn'"
        page.wait_for_function(done, arg=draws)


def draws(page: Page) -> int:
    """How often the charts were drawn so far."""
    return int(page.evaluate("window.workbench?.draws ?? 0"))


def specs(page: Page) -> list[dict[str, Any]]:
    """The specs that the page carries, in its order of charts."""
    texts = page.eval_on_selector_all("script[id^='spec-']", "all => all.map(one => [one.id, one.textContent])")
    ordered = sorted(texts, key=lambda pair: int(pair[0].removeprefix("spec-")))
    return [json.loads(text) for _, text in ordered]


def expected_marks(spec: dict[str, Any]) -> dict[str, int]:
    """How many marks each view must show, by the name of its group in the drawing, from nothing but its data."""
    values = {param["name"]: param["value"] for param in _params(spec) if "value" in param}
    for param in _params(spec):
        if made := re.fullmatch(r"round\((\d+) \* (\w+)\)", str(param.get("expr"))):
            values[param["name"]] = round(int(made[1]) * values[made[2]])
    return {
        name: _count(view, rows, values) for name, view, rows in _units(spec, "", None, spec.get("datasets", {}), {})
    }


def _params(spec: dict[str, Any]) -> list[dict[str, Any]]:
    own = list(spec.get("params", []))
    for key in ("layer", "vconcat", "hconcat", "concat"):
        own += [param for child in spec.get(key, []) for param in _params(child)]
    return own


def _units(
    view: dict[str, Any], name: str, rows: Any, named: dict[str, Any], above: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    data = view.get("data")
    if data:
        rows = data["values"] if "values" in data else named[data["name"]]
    encoding = {**above.get("encoding", {}), **view.get("encoding", {})}
    transform = [*above.get("transform", []), *view.get("transform", [])]
    full = {**view, "encoding": encoding, "transform": transform}
    for key, word in (("layer", "layer"), ("vconcat", "concat"), ("hconcat", "concat"), ("concat", "concat")):
        for index, child in enumerate(view.get(key, [])):
            prefix = f"{name}{word}_{index}_"
            yield from _units(child, prefix, rows, named, full)
    if "spec" in view:  # panels: the same group once in each, counted together
        yield from _units(view["spec"], "child_", rows, named, full)
    if "mark" in view:
        yield f"{view.get('name') + '_' if view.get('name') else name}marks", full, rows or []


def _count(view: dict[str, Any], rows: list[dict[str, Any]], values: dict[str, Any]) -> int:
    made: set[str] = set()
    for transform in view["transform"]:
        if "aggregate" in transform:
            # One row for each group; what the others come to is the page's business, as it is below.
            groups = {tuple(row[name] for name in transform["groupby"]) for row in rows}
            made |= {one["as"] for one in transform["aggregate"]}
            known = dict.fromkeys((one["as"] for one in transform["aggregate"]), True)
            rows = [{**dict(zip(transform["groupby"], group, strict=True)), **known} for group in sorted(groups)]
            continue
        if "joinaggregate" in transform:
            made |= {one["as"] for one in transform["joinaggregate"]}
            rows = [row | dict.fromkeys((one["as"] for one in transform["joinaggregate"]), True) for row in rows]
            continue
        if set(transform) == {"calculate", "as"}:
            made.add(transform["as"])
            # What it comes to is the page's business; it is known where all that it is made of is.
            parts = re.findall(r"datum\.(\w+)", transform["calculate"])
            known = [all(row.get(name) is not None for name in parts) for row in rows]
            rows = [row | {transform["as"]: good or None} for row, good in zip(rows, known, strict=True)]
            continue
        assert set(transform) == {"filter"}, f"cannot tell what {transform} leaves"
        fields = set(re.findall(r"datum\.(\w+)", str(transform["filter"])))
        if fields and fields <= made and view["transform"] and any("aggregate" in one for one in view["transform"]):
            continue  # of sums that only the page knows: it leaves out what has no value, and here all have one
        rows = [row for row in rows if _passes(transform["filter"], row, values)]
    kind = view["mark"]["type"] if isinstance(view["mark"], dict) else view["mark"]
    if kind in PATHS:
        fields = [
            c["field"] for key, c in view["encoding"].items() if key in ("color", "detail", "stroke") and "field" in c
        ]
        return len({tuple(row[name] for name in fields) for row in rows})
    wanted = [
        c["field"]
        for key, c in view["encoding"].items()
        if key in POSITIONS and c.get("type") == "quantitative" and "field" in c
    ]
    return sum(all(row.get(name) is not None for name in wanted) for row in rows)


def _passes(test: Any, row: dict[str, Any], values: dict[str, Any]) -> bool:
    if isinstance(test, dict) and set(test) == {"field", "equal"}:
        return bool(row[test["field"]] == test["equal"])
    if isinstance(test, dict) and set(test) == {"field", "oneOf"}:
        return row[test["field"]] in test["oneOf"]
    assert isinstance(test, str), f"cannot tell what {test} leaves"
    if test.startswith("!isDefined("):  # an empty brush lets everything through
        return True
    if fields := re.fullmatch(r"isValid\(datum\.(\w+)\) && isValid\(datum\.(\w+)\)", test):
        return all(row[name] is not None for name in fields.groups())
    if one := re.fullmatch(r"(!?)isValid\(datum\.(\w+)\)", test):
        return (row[one[2]] is None) == bool(one[1])
    if chosen := re.fullmatch(r"datum\.(\w+) == (\w+)", test):
        return bool(row[chosen[1]] == values[chosen[2]])
    if ticked := re.fullmatch(r'datum\.(\w+) != "([^"]*)" \|\| (\w+)', test):
        return bool(row[ticked[1]] != ticked[2] or values[ticked[3]])
    below = re.fullmatch(r"\(datum\.(\w+) <= (\w+)\)", test)
    assert below, f"cannot tell what {test} leaves"
    return bool(row[below[1]] <= values[below[2]])


def drawn_marks(page: Page, index: int, names: list[str]) -> dict[str, int]:
    """How many marks stand in each named group of a chart's SVG."""
    figure = page.locator(f"#chart-{index}").element_handle()
    return {
        name: int(page.evaluate(f"([figure, name]) => ({COUNT_CHILDREN})(figure, name)", [figure, name]))
        for name in names
    }


def is_canvas(page: Page, index: int) -> bool:
    """Was the chart drawn as pixels?"""
    return page.query_selector(f"#chart-{index} .canvas canvas") is not None


def canvas_has_marks(page: Page, index: int) -> bool:
    """Do the pixels differ from those of the same chart without its rows?"""
    script = """async (index) => {
        const old = document.querySelector(`#chart-${index} .canvas canvas`);
        const spec = JSON.parse(document.getElementById(`spec-${index}`).textContent);
        const empty = (view) => {
            if (view.data && view.data.values) view.data.values = [];
            ["layer", "vconcat", "hconcat", "concat"].forEach((key) => (view[key] || []).forEach(empty));
        };
        empty(spec);
        Object.keys(spec.datasets || {}).forEach((name) => { spec.datasets[name] = []; });
        const box = document.createElement("div");
        box.style.width = `${old.parentElement.clientWidth}px`;
        document.body.append(box);
        await vegaEmbed(box, { ...spec, background: "transparent" }, { renderer: "canvas", actions: false, ast: true });
        const inked = (canvas) => {
            const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
            let count = 0;
            for (let at = 3; at < pixels.length; at += 4) count += pixels[at] > 0;
            return count / (pixels.length / 4);
        };
        const shares = [inked(old), inked(box.querySelector("canvas"))];
        box.remove();
        return shares;
    }"""
    full, bare = page.evaluate(script, index)
    return bool(full > bare * 1.2 + 0.001)


def check_charts(page: Page) -> list[dict[str, int]]:
    """Every chart drew what its data implies, has a name for screen readers, and its words folded below."""
    counts = []
    for index, spec in enumerate(specs(page)):
        figure = page.locator(f"#chart-{index}")
        assert "drawn" in (figure.get_attribute("class") or ""), f"chart {index} was not drawn"
        assert figure.locator("details.words pre").text_content(), f"chart {index} has no text alternative"
        if is_canvas(page, index):
            assert canvas_has_marks(page, index), f"chart {index} drew nothing"
            continue
        expected = expected_marks(spec)
        drawn = drawn_marks(page, index, list(expected))
        assert drawn == expected, f"chart {index}: drawn {drawn}, data implies {expected}"
        label = page.evaluate(LABEL, index)
        assert label or not spec.get("description"), f"chart {index} has no label"
        counts.append(drawn)
    return counts


def assert_no_overflow(page: Page) -> None:
    """The page never scrolls sideways; only wide tables do, in their box."""
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert wide <= 0, f"the page is {wide} px wider than the window"
    cut = """all => all.filter(one => Number(one.getAttribute('width')) > one.closest('.canvas').clientWidth + 1)
        .map(one => one.closest('figure').id)"""
    assert page.eval_on_selector_all(".chart .canvas svg", cut) == [], "charts wider than their box"


def assert_legends_whole(page: Page) -> None:
    """No name of a legend is cut, nor lies outside of its drawing: a colour without a name cannot be read."""
    script = """all => all.flatMap(svg => {
        const frame = svg.getBoundingClientRect(), figure = svg.closest('figure').id;
        return [...svg.querySelectorAll('.role-legend text')].flatMap(text => {
            const box = text.getBoundingClientRect();
            const out = box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
            return out || text.textContent.endsWith('\u2026') ? [`${figure}: ${text.textContent}`] : [];
        });
    })"""
    assert page.eval_on_selector_all(".chart .canvas svg", script) == [], "names of legends are cut"


def resize(page: Page, width: int) -> None:
    """Give the window another width and wait until the charts followed."""
    before = draws(page)
    size = page.viewport_size or {"width": 0, "height": 900}
    page.set_viewport_size({"width": width, "height": size["height"]})
    if page.query_selector("figure.chart") and size["width"] != width:
        wait_drawn(page, before + 1)


def toggle_mode(page: Page) -> None:
    """Press the light/dark button and wait until the charts are drawn again."""
    before = draws(page)
    page.click("#mode-toggle")
    wait_drawn(page, before + 1)


def brush(page: Page, index: int, start: float, end: float) -> None:
    """Drag over the first view of a chart, from one share of its width to another."""
    box = page.locator(f"#chart-{index} .canvas svg g.concat_0_group path.background").first
    box.scroll_into_view_if_needed()
    area = box.bounding_box()
    assert area
    middle = area["y"] + area["height"] / 2
    page.mouse.move(area["x"] + area["width"] * start, middle)
    page.mouse.down()
    page.mouse.move(area["x"] + area["width"] * (start + end) / 2, middle, steps=3)
    page.mouse.move(area["x"] + area["width"] * end, middle, steps=3)
    page.mouse.up()


def drawing(page: Page, index: int) -> str:
    """A chart's marks and axes as they stand in the page."""
    return str(page.locator(f"#chart-{index} .canvas svg").inner_html())


def wait_drawing_change(page: Page, index: int, before: str) -> None:
    """Wait until a chart is drawn otherwise than before."""
    script = "([selector, before]) => document.querySelector(selector)?.innerHTML !== before"
    page.wait_for_function(script, arg=[f"#chart-{index} .canvas svg", before])


def wait_marks_change(page: Page, index: int, name: str, before: int) -> int:
    """Wait until a view shows another number of marks than before; give the new one."""
    figure = page.locator(f"#chart-{index}").element_handle()
    page.wait_for_function(
        f"([figure, name, before]) => ({COUNT_CHILDREN})(figure, name) !== before", arg=[figure, name, before]
    )
    return drawn_marks(page, index, [name])[name]


def set_slider(page: Page, index: int, value: int, *, which: int = 0) -> None:
    """Move one of a chart's sliders as a reader does: the input event is what it listens to."""
    slider = page.locator(f"#chart-{index} .vega-bindings input[type=range]").nth(which)
    slider.evaluate(
        "(one, value) => { one.value = value; one.dispatchEvent(new Event('input', { bubbles: true })); }", value
    )


def tooltip_at(page: Page, index: int, name: str) -> str:
    """Point at the first mark of a view; the words that appear."""
    mark = page.locator(f"#chart-{index} .canvas svg g.role-mark.{name} > *").first
    mark.scroll_into_view_if_needed()
    area = mark.bounding_box()
    assert area
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] / 2)
    page.wait_for_selector("#vg-tooltip-element.visible")
    return page.locator("#vg-tooltip-element").inner_text()


def axis_labels(page: Page, index: int) -> list[str]:
    """The words along a chart's axes."""
    return page.locator(f"#chart-{index} .canvas svg g.role-axis-label text").all_text_contents()


def wheel(page: Page, index: int, *, click: bool) -> None:
    """Turn the wheel over a chart's middle, after a click on it or without one."""
    box = page.locator(f"#chart-{index} .canvas svg")
    box.scroll_into_view_if_needed()
    area = box.bounding_box()
    assert area
    page.mouse.move(area["x"] + area["width"] / 2, area["y"] + area["height"] / 2)
    if click:
        page.mouse.down()
        page.mouse.up()
    page.mouse.wheel(0, -400)


def check_report(page: Page, path: Path) -> list[dict[str, int]]:
    """Examine one report from end to end; the page must come from `watched`, whose `assert_quiet` comes after.

    Returns the marks per chart, as drawn in a wide window.
    """
    page.goto(path.resolve().as_uri())
    wait_drawn(page)
    assert page.locator("h1").inner_text().strip(), "no title"
    assert page.locator(".hero .wb-chip:not(.wb-condition)").count() == 1, "no verdict"
    assert page.locator("#provenance").count() == 1, "no provenance"
    assert "://" not in (page.locator("head").inner_html().split("<style")[0]), "an address in the page's head"
    counts = check_charts(page)
    assert_no_overflow(page)
    toggle_mode(page)
    assert check_charts(page) == counts
    toggle_mode(page)
    assert_legends_whole(page)
    resize(page, 360)
    assert_no_overflow(page)
    assert_legends_whole(page)
    assert check_charts(page) == counts
    resize(page, 1280)
    return counts
