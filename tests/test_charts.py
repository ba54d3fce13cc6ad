from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt
import numpy as np
import polars as pl
import pytest
from PIL import Image, ImageChops
from polars.testing import assert_frame_equal

from tests.browser import samples
from tests.browser.pages import expected_marks
from workbench import charts
from workbench.charts import renderer, theme
from workbench.charts.data import (
    MAX_CHART_ROWS,
    assign_sub_rows,
    count_open_intervals,
    describe_spec,
    downsample_ecdf,
    extract_title,
    list_datasets,
    merge_intervals,
)
from workbench.charts.renderer import CHART_MIME
from workbench.core.errors import InputError

FOREST = {"title": "t", "label": "operator", "estimate": "speedup_ratio", "low": "ci_low", "high": "ci_high"}
TIMELINE = {"title": "t", "start": "start_s", "end": "end_s", "lane": "executor"}
ECDF = {"title": "t", "value": "latency_ms"}
HEATMAP = {"title": "t", "x": "query", "y": "operator", "value": "duration_s"}
LADDER = {"title": "t", "level": "concurrency", "value": "p95_ms", "variant": "engine"}
BARS = {"title": "t", "label": "operator", "value": "time_s"}
WATERFALL = {
    "title": "t",
    "label": "what",
    "change": "time_s",
    "end": "end_s",
    "category": "kind",
    "total": "total",
    "case": "query",
}
SCATTER = {"title": "t", "x": "actual_s", "y": "predicted_s", "label": "query", "group": "predictor"}


class Piece(NamedTuple):
    """A kind of chart, with a table for it."""

    make: Callable[..., Any]
    table: Callable[[], pl.DataFrame]
    options: dict[str, str]

    def draw(self, frame: Any = None, **more: str) -> Any:
        """The chart of this table, or of another one."""
        return self.make(self.table() if frame is None else frame, **self.options | more)

    def find_column(self, is_wanted: Callable[[pl.DataType], bool]) -> str:
        """The last of the columns it draws that is of this type."""
        schema = self.table().schema
        return next(name for name in reversed(self.options.values()) if name in schema and is_wanted(schema[name]))


PIECES = [
    Piece(charts.forest, samples.factors, FOREST),
    Piece(charts.timeline, samples.stages, TIMELINE),
    Piece(charts.ecdf, samples.latencies, ECDF),
    Piece(charts.heatmap, samples.cells, HEATMAP),
    Piece(charts.ladder, samples.levels, LADDER),
    Piece(charts.bars, samples.ranked, BARS),
    Piece(charts.waterfall, samples.steps, WATERFALL),
    Piece(charts.scatter, samples.predictions, SCATTER),
]
each_piece = pytest.mark.parametrize("piece", PIECES, ids=[piece.make.__name__ for piece in PIECES])


@pytest.fixture(autouse=True)
def own_theme() -> None:
    theme.enable_theme()


def rows_in(chart: Any) -> int:
    return sum(len(rows) for rows in list_datasets(chart.to_dict()))


SIGHT = {
    "all colours": np.eye(3),
    # Machado, Oliveira, Fernandes (2009), severity 1.0, on linear RGB.
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]
    ),
}


def linear(colour: str) -> np.ndarray:
    channels = np.array([int(colour[index : index + 2], 16) for index in (1, 3, 5)]) / 255
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    lights = sorted(float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (first, second))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def oklab(rgb: np.ndarray) -> np.ndarray:
    cones = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    axes = [
        [0.2104542553, 0.793617785, -0.0040720468],
        [1.9779984951, -2.428592205, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.808675766],
    ]
    return np.array(axes) @ np.cbrt(np.array(cones) @ np.clip(rgb, 0, 1))


@pytest.mark.parametrize("page", ["light", "dark"])
def test_every_colour_stands_out_from_the_page(page: str) -> None:
    for colour in {*theme.COLOURS.values(), *theme.CATEGORIES}:
        drawn = theme.ON_DARK.get(colour, colour) if page == "dark" else colour
        assert contrast(drawn, theme.PAGE[page]) >= 3, f"{drawn} on {page}"


def measure_distance(first: str, second: str, sight: str, page: str) -> float:
    drawn = [theme.ON_DARK.get(colour, colour) if page == "dark" else colour for colour in (first, second)]
    one, other = (oklab(SIGHT[sight] @ linear(colour)) for colour in drawn)
    return float(np.linalg.norm(one - other))


@pytest.mark.parametrize("page", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_series_are_told_apart_by_readers_of_any_colour_vision(sight: str, page: str) -> None:
    # The last one is grey, for what needs no attention.
    for first, second in itertools.combinations(theme.CATEGORIES[:-1], 2):
        distance = measure_distance(first, second, sight, page)
        assert distance >= 0.1, f"{first} and {second} for {sight} on {page}: {distance:.3f}"


@pytest.mark.parametrize("page", ["light", "dark"])
def test_the_first_two_series_differ_in_lightness_too(page: str) -> None:
    first, second = (theme.ON_DARK.get(one, one) if page == "dark" else one for one in theme.CATEGORIES[:2])
    lightness = [116 * np.cbrt(np.dot([0.2126, 0.7152, 0.0722], linear(colour))) - 16 for colour in (first, second)]
    assert abs(lightness[0] - lightness[1]) >= 12, "they are the same grey on paper"


@pytest.mark.parametrize("page", ["light", "dark"])
@pytest.mark.parametrize("sight", SIGHT)
def test_meanings_are_told_apart_by_readers_of_any_colour_vision(sight: str, page: str) -> None:
    for first, second in itertools.combinations(["baseline", "cpu", "accelerator", "failure"], 2):
        distance = measure_distance(theme.COLOURS[first], theme.COLOURS[second], sight, page)
        assert distance >= 0.08, f"{first} and {second} for {sight} on {page}: {distance:.3f}"


def test_a_meaning_has_one_colour_in_every_chart_and_no_category_takes_it() -> None:
    colours = theme.assign_colours(["Sort", "GPU", "cpu", "Filter"])
    assert colours[1] == theme.COLOURS["accelerator"]
    assert colours[2] == theme.COLOURS["cpu"]
    assert len(set(colours)) == 4


@each_piece
def test_a_missing_column_is_named_with_those_that_are_there(piece: Piece) -> None:
    name = list(piece.options.values())[1]
    with pytest.raises(InputError) as caught:
        piece.draw(piece.table().drop(name))
    assert str(caught.value).startswith(f"column(s) missing: {name}\n")
    assert piece.table().drop(name).columns[0] in str(caught.value)


@each_piece
def test_values_that_cannot_be_drawn_are_refused(piece: Piece) -> None:
    number, real = (
        piece.find_column(lambda dtype: dtype.is_numeric()),
        piece.find_column(lambda dtype: dtype.is_float()),
    )
    for told, frame in (
        ("another type", piece.table().with_columns(pl.col(number).cast(pl.String))),
        ("another type", piece.table().with_columns(pl.duration(seconds=1).alias(number))),
        ("infinite", piece.table().with_columns(pl.lit(float("inf")).alias(real))),
        ("not a data frame", piece.table().to_dicts()),
    ):
        with pytest.raises(InputError, match=told):
            piece.draw(frame)


@each_piece
@pytest.mark.parametrize("count", [0, 1])
def test_no_rows_and_one_row_are_drawn(piece: Piece, count: int) -> None:
    spec = piece.draw(piece.table().head(count)).to_dict()
    assert renderer.render_png(spec)[:4] == b"\x89PNG"
    assert f"{count} row" in spec["description"] or piece.options is ECDF


@pytest.mark.parametrize("background", ["white", "transparent"])
def test_a_picture_looks_the_same_in_fewer_bytes(background: str) -> None:
    import vl_convert

    bars = alt.Chart(pl.DataFrame({"x": [1, 2, 3], "c": ["a", "b", "c"]})).mark_bar().encode(x="x:Q", color="c:N")
    spec = bars.properties(background=background).to_dict()
    before = bytes(vl_convert.vegalite_to_png(spec, vl_version=renderer.find_vegalite_version(), scale=1.5))
    after = renderer.shrink_png(before)
    first, second = (Image.open(io.BytesIO(picture)).convert("RGBA") for picture in (before, after))
    assert first.size == second.size
    assert max(high for _, high in ImageChops.difference(first, second).getextrema()) <= 16
    assert (second.getpixel((0, 0))[3] == 0) == (background == "transparent")
    assert len(after) < 0.8 * len(before)


def test_a_long_subtitle_stands_in_several_lines() -> None:
    told = ", ".join(f"{number} runs of a scheduler" for number in range(20))
    wrapped = renderer.wrap_subtitle({"title": {"text": "Q?", "subtitle": told}})["title"]["subtitle"]
    assert max(map(len, wrapped)) <= renderer.SUBTITLE_CHARS
    assert " ".join(wrapped) == told
    assert extract_title({"title": {"text": "Q?", "subtitle": wrapped}}) == ("Q?", told)


@each_piece
def test_a_chart_is_described_in_words_from_its_table(piece: Piece) -> None:
    text = piece.draw().to_dict()["description"]
    lines = text.splitlines()
    assert lines[0] == "t."
    assert any(" rows drawn." in line for line in lines)
    assert any(" to " in line for line in lines), "the range of a quantity"
    assert any(line in ("First rows:", "Rows:") for line in lines)


@each_piece
def test_the_table_given_stays_as_it_was(piece: Piece) -> None:
    frame = piece.table()
    piece.draw(frame)
    assert_frame_equal(frame, piece.table())


@each_piece
def test_a_chart_stays_open_to_change(piece: Piece) -> None:
    assert piece.draw().properties(title="mine").to_dict()["title"] == "mine"


@each_piece
def test_every_mark_but_figures_has_a_tooltip(piece: Piece) -> None:
    def units(view: dict[str, Any], above: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        encoding = {**above, **view.get("encoding", {})}
        inner = [unit for key in ("layer", "vconcat") for child in view.get(key, []) for unit in units(child, encoding)]
        return inner + ([(view["mark"]["type"], encoding)] if "mark" in view else [])

    found = units(piece.draw().to_dict(), {})
    assert found
    for mark, encoding in found:
        assert mark in ("text", "line") or encoding.get("tooltip"), mark


BIG = 30_000
BIG_PIECES = [
    Piece(charts.ecdf, lambda: samples.latencies(BIG), ECDF | {"group": "engine"}),
    Piece(charts.timeline, lambda: samples.stages(BIG), TIMELINE | {"category": "status"}),
    Piece(charts.bars, lambda: samples.ranked(BIG), BARS),
]


@pytest.mark.parametrize("piece", BIG_PIECES)
def test_a_large_table_is_thinned_and_the_subtitle_says_so(piece: Piece) -> None:
    chart = piece.draw()
    assert rows_in(chart) <= MAX_CHART_ROWS
    assert any(word in chart.to_dict()["title"]["subtitle"] for word in ("thinned", "drawn as", "not drawn"))


def test_what_cannot_be_thinned_is_refused_with_advice() -> None:
    many = pl.DataFrame({"place": range(6_000)}).with_columns(
        name=pl.col("place").cast(pl.String), one=1.0, a=pl.lit("a")
    )
    for make, options in (
        (charts.forest, FOREST | {"label": "name", "estimate": "one", "low": "one", "high": "one"}),
        (charts.heatmap, HEATMAP | {"x": "name", "y": "a", "value": "one"}),
        (charts.ladder, LADDER | {"level": "place", "value": "one", "variant": "a"}),
    ):
        with pytest.raises(InputError) as caught:
            make(many, **options)
        assert caught.value.facts["do"]


def test_forest_draws_no_interval_where_there_is_none_and_counts_what_it_leaves_out() -> None:
    table = samples.factors().with_columns(
        speedup_ratio=pl.when(pl.col("n") == 12).then(None).otherwise("speedup_ratio")
    )
    spec = charts.forest(table, **FOREST).to_dict()
    assert list(expected_marks(spec).values()) == [1, 4, 5], "reference line, intervals, dots"
    assert "2 rows without a value not drawn" in spec["title"]["subtitle"]


def test_forest_on_a_log_axis_refuses_zero() -> None:
    table = samples.factors().with_columns(ci_low=pl.lit(0.0))
    with pytest.raises(InputError, match="log axis"):
        charts.forest(table, **FOREST)
    assert charts.forest(table, **FOREST, log=False).to_dict()["layer"]


VERDICTS = ["FASTER", "FASTER", "FASTER", "FASTER", "SAME", "UNDECIDED", "SLOWER"]


def test_forest_colours_rows_by_category_and_fades_those_of_which_little_is_known() -> None:
    table = samples.factors().with_columns(verdict=pl.Series(VERDICTS), weak=pl.col("n") < 5, note=pl.lit("why"))
    spec = charts.forest(table, **FOREST, told_apart="told_apart", category="verdict", faint="weak", details=("note",))
    built = spec.to_dict()
    dots = built["layer"][2]["encoding"]
    scale = dots["fill"]["scale"]
    colours = dict(zip(scale["domain"], scale["range"], strict=True))
    assert colours["FASTER"] == theme.COLOURS["accelerator"]
    assert colours["SLOWER"] == theme.COLOURS["failure"]
    assert dots["opacity"]["condition"]["test"] == "datum.weak"
    assert {"note", "verdict"} <= {tip["field"] for tip in dots["tooltip"]}
    assert "hollow: no clear difference · pale: few samples" in built["title"]["subtitle"]


def rows_of(chart: Any) -> list[dict[str, Any]]:
    return max(list_datasets(chart.to_dict()), key=len)


def test_waterfall_steps_start_where_the_one_above_ended_and_totals_at_zero() -> None:
    rows = [row for row in rows_of(charts.waterfall(samples.steps(), **WATERFALL)) if row["query"] == "q1"]
    assert [row["bar_start"] for row in rows] == [0, 10, 4, 0, 0]
    assert [row["bar_joint"] for row in rows] == [10, 4, 3, None, None], "the measured total is not what was reached"


def test_waterfall_writes_steps_with_their_sign_and_the_decimals_of_the_total() -> None:
    rows = rows_of(charts.waterfall(samples.steps(), **WATERFALL))
    assert [row["bar_figure"] for row in rows][:3] == ["10.0", "−6.0", "−1.0"]
    assert [row["bar_figure"] for row in rows][5:] == ["0.400", "+0.100", "0.500"]


def test_waterfall_shows_the_case_asked_for_and_tells_it_in_words() -> None:
    spec = charts.waterfall(samples.steps(), **WATERFALL, first="q2").to_dict()
    assert spec["params"][0]["value"] == "q2"
    assert spec["params"][0]["bind"]["options"] == ["q1", "q2"]
    assert set(expected_marks(spec).values()) == {2, 3}, "two joints, three bars"
    assert "Join" in spec["description"]
    assert "Filter" not in spec["description"]
    with pytest.raises(InputError, match="no such case"):
        charts.waterfall(samples.steps(), **WATERFALL, first="q9")


def test_waterfall_of_one_case_offers_no_choice() -> None:
    table = samples.steps().filter(pl.col("query") == "q1").drop("query")
    spec = charts.waterfall(table, **{name: value for name, value in WATERFALL.items() if name != "case"}).to_dict()
    assert "params" not in spec
    assert expected_marks(spec)["layer_1_marks"] == 5


def test_scatter_draws_a_hidden_group_only_when_asked() -> None:
    spec = charts.scatter(samples.predictions(), **SCATTER, hidden=("constant",)).to_dict()
    assert expected_marks(spec)["layer_1_marks"] == 12
    assert [param["bind"]["name"] for param in spec["params"] if "bind" in param and param["bind"] != "scales"] == [
        "Show constant "
    ]
    assert expected_marks(charts.scatter(samples.predictions(), **SCATTER).to_dict())["layer_1_marks"] == 24


def test_scatter_has_one_range_on_both_axes_with_the_diagonal_from_corner_to_corner() -> None:
    spec = charts.scatter(samples.predictions(), **SCATTER).to_dict()
    encoding = spec["layer"][1]["encoding"]
    domain = encoding["x"]["scale"]["domain"]
    assert encoding["y"]["scale"]["domain"] == domain
    assert [[row["actual_s"], row["predicted_s"]] for row in min(list_datasets(spec), key=len)] == [
        [end] * 2 for end in domain
    ]


def test_scatter_names_points_where_names_do_not_cover_each_other() -> None:
    table = pl.DataFrame(
        {"query": ["far", "beside", "apart"], "actual_s": [1.0, 1.01, 9.0], "predicted_s": [3.0, 2.9, 9]}
    )
    chart = charts.scatter(table.with_columns(worst=True), **{**SCATTER, "group": None}, named="worst").to_dict()
    named = [row["query"] for layer in chart["layer"][2:] for row in chart["datasets"][layer["data"]["name"]]]
    assert sorted(named) == ["apart", "far"]


def test_scatter_on_log_axes_refuses_zero_and_too_many_groups() -> None:
    with pytest.raises(InputError, match="log axis"):
        charts.scatter(samples.predictions().with_columns(actual_s=pl.lit(0.0)), **SCATTER)
    assert charts.scatter(samples.predictions().with_columns(actual_s=pl.lit(0.0)), **SCATTER, log=False).to_dict()
    many = samples.predictions().with_columns(predictor=pl.col("query"), query=pl.int_range(pl.len()).cast(pl.String))
    with pytest.raises(InputError, match="too many groups"):
        charts.scatter(many, **SCATTER)


def test_two_rows_in_one_place_are_refused() -> None:
    table = pl.concat([samples.factors(), samples.factors().head(1)])
    with pytest.raises(InputError, match="two rows in one place"):
        charts.forest(table, **FOREST)


def test_ecdf_marks_the_smallest_value_that_holds_the_share() -> None:
    chart = charts.ecdf(pl.DataFrame({"latency_ms": [*range(1, 101), None]}), **ECDF)
    subtitle = chart.to_dict()["title"]["subtitle"]
    assert "p50 50 ms; p95 95 ms; p99 99 ms" in subtitle
    assert "n = 100" in subtitle
    assert "1 row without a value" in subtitle


def test_thinned_steps_are_exact_and_keep_the_ends() -> None:
    values = pl.Series(np.random.default_rng(0).normal(size=20_000))
    every, kept = downsample_ecdf(values, positions=20_000), downsample_ecdf(values)
    assert kept.height <= 2_000
    assert kept.join(every, on=["value", "share"]).height == kept.height
    assert_frame_equal(kept.head(200), every.head(200))
    assert_frame_equal(kept.tail(200), every.tail(200))
    assert kept["share"].diff().max() <= 0.001


def test_merged_intervals_cover_the_same_time() -> None:
    random = np.random.default_rng(4)
    start = random.uniform(0, 1_000, 6_000)
    frame = pl.DataFrame({"lane": random.integers(0, 3, 6_000).astype(str), "start_s": start, "end_s": start + 0.2})
    merged, told = merge_intervals(frame, "start_s", "end_s", ["lane"], limit=3_500)
    assert merged.height <= 3_500
    assert "6,000 intervals drawn as" in told
    assert merged["intervals"].sum() == 6_000
    for lane in ("0", "1", "2"):
        old, new = (one.filter(pl.col("lane") == lane) for one in (frame, merged))
        assert (new["start_s"].min(), new["end_s"].max()) == (old["start_s"].min(), old["end_s"].max())
        moments = old["start_s"].to_numpy() + 0.1
        inside = (new["start_s"].to_numpy()[:, None] <= moments) & (moments <= new["end_s"].to_numpy()[:, None])
        assert inside.any(axis=0).all(), "an interval lost its place"


def test_touching_intervals_merge_before_any_gap_is_closed() -> None:
    frame = pl.DataFrame({"lane": ["a"] * 4, "start_s": [0.0, 1.0, 2.0, 10.0], "end_s": [1.0, 2.0, 3.0, 11.0]})
    merged, told = merge_intervals(frame, "start_s", "end_s", ["lane"], limit=2)
    assert merged.select("start_s", "end_s", "intervals").rows() == [(0.0, 3.0, 3), (10.0, 11.0, 1)]
    assert told.endswith("those that touch are merged")


def test_open_intervals_in_bins_keep_the_peak() -> None:
    frame = samples.stages(3_000)
    exact, _ = count_open_intervals(frame, "start_s", "end_s", positions=10_000)
    binned, told = count_open_intervals(frame, "start_s", "end_s", positions=200)
    assert binned.height == 200
    assert told.startswith("overview: peak in bins")
    assert binned["open"].max() == exact["open"].max()
    assert count_open_intervals(frame.clear(), "start_s", "end_s")[0].height == 0


def test_stacked_rows_never_overlap() -> None:
    frame = samples.stages(300)
    starts, ends = frame["start_s"].to_list(), frame["end_s"].to_list()
    rows = assign_sub_rows(starts, ends)
    for row in set(rows):
        spans = sorted((starts[index], ends[index]) for index in range(300) if rows[index] == row)
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_an_interval_that_ends_before_it_starts_is_refused() -> None:
    table = samples.stages().with_columns(end_s=pl.col("start_s") - 1)
    with pytest.raises(InputError, match="ends before"):
        charts.timeline(table, **TIMELINE)


def test_bars_show_as_many_as_asked_and_let_the_reader_ask_for_more() -> None:
    spec = charts.bars(samples.ranked(), **BARS, top=4).to_dict()
    assert expected_marks(spec)["layer_0_marks"] == 4
    assert spec["params"][0]["bind"]["max"] == 30
    with pytest.raises(InputError):
        charts.bars(samples.ranked(), **BARS, top=0)


def test_markup_in_names_stays_text() -> None:
    table = samples.factors().with_columns(operator=pl.lit("</script><!--") + pl.col("operator"))
    text = renderer.format_script_json(charts.forest(table, **FOREST).to_dict())
    assert "</" not in text
    assert "<!--" not in text
    assert json.loads(text)["layer"]


def test_headless_a_chart_is_spec_picture_and_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORKBENCH_RUN_DIR", str(tmp_path))
    charts.setup()
    data = charts.bars(samples.ranked(), **BARS)._repr_mimebundle_()
    assert set(data) == {"application/vnd.vegalite.v6+json", "image/png", "text/plain"}
    assert base64.b64decode(data["image/png"])[:4] == b"\x89PNG"
    assert data["text/plain"].startswith("t.\n")


def test_outside_a_kernel_setup_and_display_need_no_network_and_no_widget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORKBENCH_RUN_DIR", raising=False)
    charts.setup()
    assert "text/html" not in charts.bars(samples.ranked(), **BARS)._repr_mimebundle_()


@each_piece
def test_control_characters_of_a_log_do_not_stop_a_chart(piece: Piece) -> None:
    frame = piece.table().with_columns(pl.col(pl.String) + "\x1b[31m\x00")
    data = renderer.build_mime_bundle(piece.draw(frame, title="a\x07\ud800").to_dict())
    assert base64.b64decode(data["image/png"])[:4] == b"\x89PNG"
    assert not {"\x1b", "\x00", "\x07"} & set(json.dumps(data[CHART_MIME], ensure_ascii=False))


def test_live_html_holds_the_spec_without_an_address_to_load() -> None:
    html = renderer.render_live_html(charts.bars(samples.ranked(), **BARS).to_dict())
    assert "src=" not in html
    assert html.count("<script") == 3


def test_a_chart_of_somebody_else_is_described_too() -> None:
    chart = (
        alt.Chart(pl.DataFrame({"a": [1, 2, None]}))
        .mark_point()
        .encode(x=alt.X("a", type="quantitative"))
        .properties(title="Dots")
    )
    assert describe_spec(chart.to_dict()).splitlines()[:3] == ["Dots.", "3 rows drawn.", "a: 1 to 2, 1 missing."]


def test_the_bundle_is_kept_in_the_users_cache_and_a_damaged_copy_is_made_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    renderer.load_vega_bundle.cache_clear()
    first = renderer.load_vega_bundle()
    kept = list(tmp_path.rglob("vega-bundle-*.js"))
    assert len(kept) == 1
    assert "</script" not in first.lower()
    kept[0].write_text("half of i", encoding="utf-8")
    renderer.load_vega_bundle.cache_clear()
    assert renderer.load_vega_bundle() == first
    assert kept[0].read_text(encoding="utf-8") == first


def test_a_cache_that_cannot_be_written_only_costs_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    renderer.load_vega_bundle.cache_clear()
    assert "vegaEmbed" in renderer.load_vega_bundle()
