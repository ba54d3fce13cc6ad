"""Points of a history: ratios to the reference of the same rounds, and what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.indicators.history.planted import PACKAGES, REFERENCE_KEY, build_planted_history, build_rows
from workbench.core.errors import InputError
from workbench.indicators.history.history_points import (
    NO_REFERENCE,
    OTHER_REFERENCE,
    HistoryFilter,
    build_history,
    load_history,
    strip_versions,
)
from workbench.indicators.store.archive import STANDS_FOR
from workbench.indicators.tables import POINTS

Row = dict[str, Any]
NEWER = {"arm": "numpy 2.4.6", "stack": "numpy 2.4.6", "stack_key": "c" * 64}


def copied(rows: list[Row], prefix: str = "", **changed: object) -> list[Row]:
    """Rows of sessions whose names have a prefix, with some columns changed; a change may be a function of the row."""
    made = [row | {"session_id": prefix + row["session_id"]} for row in rows]
    return [row | {name: to(row) if callable(to) else to for name, to in changed.items()} for row in made]


def points_of(rows: list[Row], **chosen: object) -> pl.DataFrame:
    return build_history(rows, PACKAGES, HistoryFilter(**chosen)).points


def of_kind(points: pl.DataFrame, kind: str) -> pl.DataFrame:
    return points.filter(pl.col("kind") == kind)


@pytest.mark.parametrize("better", ["lower", "higher"])
def test_a_point_is_how_many_times_better_than_the_reference(better: str) -> None:
    points = build_planted_history(6, lambda session: 1.25, better=better).points
    followed = of_kind(points, "followed")
    assert followed["log_ratio"].exp().to_list() == pytest.approx([1.25] * 6, rel=0.03)
    assert followed["stack"].unique().to_list() == ["numpy"]
    assert followed["packages"].unique().to_list() == ["numpy==2.3.0"]
    assert followed["rounds"].to_list() == [5] * 6
    # What slows a whole round cancels: rounds differ by 30 %, ratios by one.
    assert followed["error"].max() < 0.02
    assert of_kind(points, "control")["log_ratio"].abs().max() < 0.03
    assert of_kind(points, "machine").height == 6


def test_a_new_version_of_the_stack_stays_in_its_series() -> None:
    points = build_planted_history(4, key=lambda session: ("b" if session < 2 else "c") * 64).points
    followed = of_kind(points, "followed")
    assert followed["series"].n_unique() == 1
    assert followed["packages"].to_list() == ["numpy==2.3.0"] * 2 + ["numpy==2.4.6"] * 2


def test_other_machines_threads_and_versions_are_other_series() -> None:
    rows = build_rows(2)
    for name, value in (("hardware_key", "m2"), ("threads", 2), ("indicator_version", "v2")):
        rows += copied(build_rows(2), f"{name}-", **{name: value})
    assert of_kind(points_of(rows), "followed")["series"].n_unique() == 4


def test_a_control_that_stands_for_the_followed_stack_is_its_point() -> None:
    rows = [row for row in build_rows(3) if not row["arm"].startswith("numpy")]
    for row in rows:
        row["notes"] = json.dumps({STANDS_FOR: "numpy 2.2.6"}) if row["copy_number"] else "{}"
    points = points_of(rows)
    followed, control = of_kind(points, "followed"), of_kind(points, "control")
    assert followed["stack"].unique().to_list() == ["numpy"]
    assert followed["log_ratio"].to_list() == control["log_ratio"].to_list()


def test_a_session_of_two_versions_does_not_rename_those_of_one() -> None:
    rows = build_rows(4)
    last = [row for row in rows if (row["arm"], row["session_id"]) == ("numpy 2.3.0", "s003")]
    found = of_kind(points_of(rows + copied(last, **NEWER)), "followed")
    assert sorted(found["stack"]) == ["numpy", "numpy", "numpy", "numpy 2.3.0", "numpy 2.4.6"]


def test_one_version_with_two_thread_counts_in_a_session_keeps_its_short_name() -> None:
    rows = build_rows(3)
    more = copied([row for row in rows if row["arm"] == "numpy 2.3.0"], arm="numpy twice", threads=2)
    found = of_kind(points_of(rows + more), "followed")
    assert set(found["stack"]) == {"numpy"}


def test_what_has_no_reference_is_left_out_and_counted() -> None:
    key = lambda row: ("c" if row["arm"] == "reference" else "d") * 64  # noqa: E731
    rows = build_rows(4) + copied(build_rows(2), "i", backend="imported") + copied(build_rows(1), "b", design="blocks")
    rows += copied(build_rows(1), "o", stack_key=key) + copied(build_rows(1, rounds=1), "t")
    found = build_history(rows, PACKAGES, HistoryFilter())
    assert found.left_out == {NO_REFERENCE: 3, OTHER_REFERENCE: 1, "fewer than 2 rounds with both values": 1}
    assert set(found.points["session_id"]) == {"s000", "s001", "s002", "s003"}
    absolute = build_history(rows, PACKAGES, HistoryFilter(absolute=True))
    assert NO_REFERENCE not in absolute.left_out
    without = absolute.points.filter(pl.col("reference") == "")
    assert "is000" in set(without["session_id"])
    # There is no ratio but to the first session of the series.
    first = without.group_by("series", maintain_order=True).first()["log_ratio"]
    assert first.to_list() == [0.0] * without["series"].n_unique()


def test_the_reference_can_be_chosen() -> None:
    key = lambda row: ("c" if row["arm"] == "reference" else "b") * 64  # noqa: E731
    rows = build_rows(3) + copied(build_rows(1), "o", stack_key=key)
    assert points_of(rows)["reference"].unique().to_list() == [REFERENCE_KEY[:12]]
    assert set(points_of(rows, reference="cc")["session_id"]) == {"os000"}
    with pytest.raises(InputError, match="no session has this reference"):
        points_of(rows, reference="f")


def test_the_other_clock_is_taken_where_it_is_known() -> None:
    rows = build_rows(2)
    for row in rows:
        row["other_value"] = row["value"] * (3.0 if row["arm"].startswith("numpy") else 1.0)
    points = points_of(rows, clock="cpu")
    assert of_kind(points, "followed")["log_ratio"].exp().to_list() == pytest.approx([1 / 3] * 2, rel=0.05)
    assert points["clock"].unique().to_list() == ["cpu"]


def test_names_lose_the_versions_of_their_packages_alone() -> None:
    stacks = ("numpy 2.4.6", "numpy 2.4.6, no pandas", "my env", "numpy 1.0")
    found = [strip_versions(stack, {"numpy": "2.4.6"}) for stack in stacks]
    assert found == ["numpy", "numpy, no pandas", "my env", "numpy 1.0"]


def test_a_table_of_points_is_read_and_a_damaged_one_is_refused(tmp_path: Path) -> None:
    points = build_planted_history(3).points
    path = POINTS.write(points, tmp_path)
    assert load_history(path, HistoryFilter(indicator="sort")).points.equals(points)
    many = pl.concat(
        [points.filter(pl.col("series") == 1).with_columns(session_id=pl.lit(f"s{n:05d}")) for n in range(700)]
    ).with_row_index()
    many = many.with_columns(session_id=pl.col("session_id") + pl.col("index").cast(pl.String)).drop("index")
    many.write_parquet(path)
    newest = load_history(path, HistoryFilter())
    assert (newest.points.height, newest.left_out) == (2000, {"not among the newest 2,000 of its series": 100})
    points.with_columns(log_ratio=pl.lit(float("nan"))).write_parquet(path)
    with pytest.raises(InputError, match="not finite"):
        load_history(path, HistoryFilter())
    path.write_bytes(b"PAR1 no table")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        load_history(path, HistoryFilter())
