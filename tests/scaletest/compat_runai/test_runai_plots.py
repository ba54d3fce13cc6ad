from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

from tests.scaletest.compat_runai.test_runai_files import jobs_of, sampled, submitted
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.command import app
from workbench.scaletest.compat_runai import runai_plots
from workbench.scaletest.compat_runai.runai_plots import write_upstream_report

PNG = b"\x89PNG\r\n\x1a\n"


def titles(made: Any) -> list[str]:
    found = []
    for row in made.to_dict()["vconcat"]:
        left = row["hconcat"][0] if "hconcat" in row else row
        found.append(next(layer["title"]["text"] for layer in left["layer"] if "title" in layer))
    return found


def test_the_general_plot_shows_totals_with_the_old_average_and_quantiles(jobs: pl.DataFrame) -> None:
    made = runai_plots.chart_plot(runai_plots.select_jobs(jobs), "general")
    assert titles(made) == [
        "Total Pod Scheduling Decision Time from Workload Submission (average: 8.90 seconds, p50 6, p95 16)"
    ]
    assert made.to_dict()["title"]["text"] == "Total number of workloads: 10"


def test_the_detailed_plot_has_a_row_for_each_step_that_was_measured(jobs: pl.DataFrame) -> None:
    found = titles(runai_plots.chart_plot(runai_plots.select_jobs(jobs), "detailed"))
    assert [title.split(" (")[0] for title in found] == [
        "Time between Workload Submission and Workload Creation",
        "Time between Workload Creation and Job Creation",
        "Time between Job Creation and First Pod Creation",
        "Time between Job Creation and Last Pod Creation",
        "Time between First Pod Creation and Pod Group Creation",
        "Time between Pod Group Creation and Pod Scheduling Decision",
        "Time between Pod Group Creation and First PVC Bind Request",
        "Time between First PVC Bind Request and First PVC Bind",
    ]


def test_all_rows_show_the_workloads_in_one_order(tmp_path: Path) -> None:
    """Several in one second, whose values fall while others rise: the old tool sorted each row by its own values."""
    rows = [submitted(f"j-{i}", f"2026-01-01T10:00:00.{i}00000+00:00") for i in range(4)]
    later = {"jobCreatedTimestamp": "2026-01-01T10:00:09Z"}
    order = (2, 0, 3, 1)
    samples = [sampled(f"j-{i}", workloadCreatedTimestamp=f"2026-01-01T10:00:0{4 - i}Z", **later) for i in order]
    jobs = jobs_of(tmp_path, rows, samples)
    spec = runai_plots.chart_plot(runai_plots.select_jobs(jobs), "detailed").to_dict()
    drawn = [[point["delta_s"] for point in row["hconcat"][0]["data"]["values"]] for row in spec["vconcat"][:2]]
    assert drawn == [[4.0, 3.0, 2.0, 1.0], [5.0, 6.0, 7.0, 8.0]]


def test_head_and_tail_cut_all_rows_alike(jobs: pl.DataFrame) -> None:
    every = runai_plots.select_jobs(jobs)["name"].to_list()
    assert runai_plots.select_jobs(jobs, head=3)["name"].to_list() == every[:3]
    assert runai_plots.select_jobs(jobs, tail=2)["name"].to_list() == every[-2:]
    assert runai_plots.select_jobs(jobs, head=5, tail=2)["name"].to_list() == every[3:5]
    assert runai_plots.select_jobs(jobs, skip_errors=False).height == 12
    with pytest.raises(ConfigError, match="not a number of workloads"):
        runai_plots.select_jobs(jobs, head=0)


def test_many_workloads_are_drawn_by_their_least_and_most() -> None:
    points = pl.DataFrame({"x": [float(i) for i in range(50_000)], "delta_s": [float(i % 97) for i in range(50_000)]})
    points = points.with_columns(delta_s=pl.when(pl.col("x") == 31_415).then(500.0).otherwise("delta_s"))
    shown = runai_plots.downsample_points(points)
    assert shown.height <= runai_plots.MAX_POINTS
    assert shown["delta_s"].max() == 500.0
    assert shown["x"].is_sorted()


def test_bins_hold_every_value_and_end_with_all() -> None:
    for values in ([0.0], [-1.0, 3.0, 3.0], [float(i) for i in range(1000)]):
        made = runai_plots.build_bins(pl.Series(values))
        assert sum(one["count"] for one in made) == len(values)
        assert made[-1]["share"] == 1.0
        assert len(made) <= 40


def test_nothing_to_draw_and_unknown_plots_are_told(jobs: pl.DataFrame) -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        runai_plots.chart_plot(jobs.clear(), "general")
    with pytest.raises(ConfigError, match="no such plot"):
        runai_plots.chart_plot(jobs, "both")  # type: ignore[arg-type]


def test_the_command_writes_picture_and_times(old: Path, tmp_path: Path) -> None:
    flags = ["--plot", "detailed", "--head", "8", "--out", str(tmp_path), "--json"]
    told = json.loads(CliRunner().invoke(app, ["report", "-o", str(old), *flags]).stdout)
    assert (told["drawn"], told["skipped"], told["sampled"]) == (8, 2, 12)
    assert Path(told["picture"]).read_bytes().startswith(PNG)
    assert len(Path(told["times"]).read_text().splitlines()) == 11


def test_skipping_errors_can_be_switched_off(old: Path, tmp_path: Path) -> None:
    assert write_upstream_report(old, out=tmp_path, skip_errors=False).drawn == 12
    assert len((tmp_path / "times.csv").read_text().splitlines()) == 13


def test_a_folder_deep_down_is_made(old: Path, tmp_path: Path) -> None:
    assert write_upstream_report(old, out=tmp_path / "a" / "b").picture.is_file()
