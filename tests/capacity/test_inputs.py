"""Runs are taken for what they are: valid or refused, whole or named with what is missing."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.capacity.making import (
    SAMPLES,
    application,
    config,
    only,
    run_folder,
    scale_run,
    sizing_run,
    speedup_run,
    stack_run,
)
from workbench.capacity import inputs, peak
from workbench.capacity import tables as capacity_tables
from workbench.capacity.config import parse_job_class
from workbench.capacity.inputs import ScalingLaw, open_input_run
from workbench.capacity.study import build_plan
from workbench.core.errors import ConfigError, InputError, WorkbenchError
from workbench.core.tables import Table
from workbench.indicators import tables as indicator_tables
from workbench.runs.run_folder import start_run
from workbench.scaletest import tables as scaletest_tables
from workbench.sizing import tables as sizing_tables
from workbench.sizing.config import NotebookConfig
from workbench.sizing.estimation import gpu_estimates
from workbench.sizing.study import build_study as build_sizing_study
from workbench.speedup import tables as speedup_tables

ETL = parse_job_class("etl applications='etl*' per_hour=1")
load_jobs = partial(inputs.load_jobs, accept_invalid=False)
load_service = partial(inputs.load_service, accept_invalid=False)
load_stack = partial(inputs.load_stack, accept_invalid=False)
load_scheduler = partial(inputs.load_scheduler, accept_invalid=False)
READERS: dict[str, Callable[[str], Any]] = {
    "speedup": load_jobs,
    "sizing": load_service,
    "indicators": load_stack,
    "scaletest": lambda folder: load_scheduler(folder, ""),
}
MAKERS: dict[str, Callable[[Path], Path]] = {
    "speedup": speedup_run,
    "sizing": sizing_run,
    "indicators": stack_run,
    "scaletest": scale_run,
}


def change_record(folder: Path, **record: object) -> str:
    path = folder / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | record))
    return str(folder)


def change_table(folder: Path, table: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> str:
    path = folder / "tables" / f"{table}.parquet"
    change(pl.read_parquet(path)).write_parquet(path)
    return str(folder)


def told(call: Callable[[], object], kind: type[WorkbenchError] = InputError) -> str:
    with pytest.raises(kind) as error:
        call()
    assert error.value.exit_code == 2
    return str(error.value)


@pytest.mark.parametrize("area", READERS)
def test_a_sample_run_is_valid_and_read(area: str) -> None:
    found = READERS[area](str(SAMPLES / area))
    assert (found.opened.objection, found.opened.verdict) == ("", "valid")


def test_the_mean_of_the_applications_has_the_means_of_their_ends(tmp_path: Path) -> None:
    rows = [
        application("etl 1", 100.0, predicted_low_s=80.0, predicted_high_s=130.0),
        application("etl 2", 300.0, predicted_low_s=200.0, predicted_high_s=450.0),
        application("report", 5.0, predicted_low_s=4.0, predicted_high_s=6.0),
        application("etl 3", None),
    ]
    jobs = load_jobs(str(speedup_run(tmp_path, *rows, config={"level": 0.8})))
    found = jobs.build_duration(ETL)
    assert (found.value, found.low, found.high, found.level) == (200.0, 140.0, 290.0, 0.8)
    assert jobs.select_class(ETL)["app_name"].to_list() == ["etl 1", "etl 2"]


def test_classes_of_the_same_applications_share_one_duration(tmp_path: Path) -> None:
    jobs = load_jobs(str(speedup_run(tmp_path, application("etl 1"), application("b"))))
    texts = ("day applications='etl*' per_hour=1", "night applications='etl 1' per_hour=1", "all per_hour=1")
    found = jobs.build_durations([parse_job_class(text) for text in texts])
    assert [one.name for one in found] == ["duration of day and night"] * 2 + ["duration of all"]


def test_an_application_without_an_interval_makes_its_class_a_point(tmp_path: Path) -> None:
    rows = [application("etl 1", 100.0, predicted_low_s=80.0, predicted_high_s=130.0), application("etl 2", 300.0)]
    jobs = load_jobs(str(speedup_run(tmp_path, *rows)))
    assert (jobs.build_duration(ETL).is_point, jobs.build_duration(ETL).value) == (True, 200.0)


def test_a_class_that_matches_nothing_is_told_what_there_is(tmp_path: Path) -> None:
    jobs = load_jobs(str(speedup_run(tmp_path, application("nightly"), application("raw", None))), accept_invalid=False)
    said = told(lambda: jobs.build_duration(ETL))
    assert "etl*" in said
    assert "nightly, raw" in said
    assert "judged" in told(lambda: jobs.build_duration(parse_job_class("a applications=raw per_hour=1")))


def test_applications_go_by_the_file_of_their_log_too(tmp_path: Path) -> None:
    jobs = load_jobs(str(speedup_run(tmp_path, application("etl 1") | {"app_name": None})))
    assert jobs.select_class(parse_job_class("a applications='etl 1.zstd' per_hour=1")).height == 1


def test_the_binding_target_is_the_one_that_is_planned_with(tmp_path: Path) -> None:
    row = dict.fromkeys(capacity_tables.INPUT_ESTIMATES.schema()) | {"load_unit": "1/s", "test_gpus": 2}
    rows = [
        row | {"target": "loose", "capacity": 90.0, "binding": False},
        row | {"target": "tight", "capacity": 30.0, "capacity_low": 25.0, "capacity_high": 33.0, "binding": True},
    ]
    steps = [{"step": 0, "simulated": False}]
    folder = run_folder(tmp_path, "sizing", {capacity_tables.INPUT_ESTIMATES: rows, capacity_tables.INPUT_STEPS: steps})
    found = load_service(str(folder))
    carried = found.carried
    assert (found.target, carried.value, carried.low, carried.unit) == ("tight", 30.0, 25.0, "requests/s")
    assert not found.simulated


@pytest.mark.parametrize(("end", "value", "ends"), [("low", 25.0, (25.0, 64.0)), ("high", 50.0, (32.0, 50.0))])
def test_a_capacity_with_one_end_gets_the_other_as_far_from_the_value(
    tmp_path: Path, end: str, value: float, ends: tuple[float, float]
) -> None:
    found = load_service(str(sizing_run(tmp_path, **{f"capacity_{end}": value})))
    assert (found.carried.low, found.carried.high) == pytest.approx(ends)


def test_a_replica_carries_no_more_than_a_verification_showed(tmp_path: Path) -> None:
    gpus = {"load": 400.0, "gpus": 20.0, "gpus_low": 19.0, "gpus_high": 21.0, "capacity_low": 38.1}
    assert load_service(str(sizing_run(tmp_path / "a", recommended=21, **gpus))).carried.low == 38.1
    # 22 GPUs were too few, 24 held 400 users.
    assert load_service(str(sizing_run(tmp_path / "b", recommended=24, **gpus))).carried.low == pytest.approx(400 / 12)


def test_a_sizing_run_without_a_number_says_why(tmp_path: Path) -> None:
    said = told(
        lambda: load_service(
            str(sizing_run(tmp_path, capacity=None, reason="the levels do not reach")), accept_invalid=False
        )
    )
    assert "the levels do not reach" in said
    assert "capacity" in said


def test_the_stack_is_the_recommended_one_with_what_it_was_measured_on(tmp_path: Path) -> None:
    found = load_stack(str(stack_run(tmp_path)))
    assert (found.name, found.baseline, found.metrics) == ("new", "old", ("Sort",))
    assert (found.ratio.value, found.ratio.low, found.ratio.high, found.ratio.level) == (2.0, 1.8, 2.2, 0.95)


def test_no_recommendation_is_refused_and_the_baseline_is_a_point(tmp_path: Path) -> None:
    assert "without a recommendation" in told(lambda: load_stack(str(stack_run(tmp_path / "none", recommended=False))))
    row = {"baseline": True, "ratio": 1.0, "low": 1.0, "high": 1.0}
    assert load_stack(str(stack_run(tmp_path, **row))).ratio.is_point


def test_the_side_of_a_scale_test_is_chosen_by_name(tmp_path: Path) -> None:
    sample = str(SAMPLES / "scaletest")
    assert load_scheduler(sample, "kai-scheduler").side == "kai-scheduler"
    assert load_scheduler(sample, "").side == "default-scheduler"
    said = told(lambda: load_scheduler(sample, "volcano"), ConfigError)
    assert "default-scheduler, kai-scheduler" in said
    alone = str(scale_run(tmp_path))
    assert load_scheduler(alone, "").side == "the scheduler"
    assert "leave it empty" in told(lambda: load_scheduler(alone, "kai"), ConfigError)


@pytest.mark.parametrize("area", READERS)
@pytest.mark.parametrize(
    ("record", "said"),
    [
        ({"verdict": "invalid", "reasons": ["the client was late"]}, "the client was late"),
        ({"status": "failed", "verdict": None}, "it failed"),
        ({"status": "running", "verdict": None}, "not finished"),
        ({"verdict": None}, "no verdict"),
    ],
)
def test_a_run_that_must_not_be_believed_is_refused(
    tmp_path: Path, area: str, record: dict[str, Any], said: str
) -> None:
    folder = change_record(MAKERS[area](tmp_path), **record)
    text = told(lambda: READERS[area](folder))
    assert said in text
    assert "--accept-invalid" in text
    assert said in open_input_run(folder, area, accept_invalid=True).objection


@pytest.mark.parametrize("area", READERS)
def test_a_run_of_a_newer_workbench_is_refused_with_advice(tmp_path: Path, area: str) -> None:
    folder = change_record(MAKERS[area](tmp_path), format_version=99)
    assert "newer workbench" in told(lambda: READERS[area](folder))


@pytest.mark.parametrize("area", READERS)
def test_a_missing_table_is_named_with_the_run_and_what_is_there(tmp_path: Path, area: str) -> None:
    folder = run_folder(tmp_path, area, {})
    text = told(lambda: READERS[area](str(folder)))
    run_id = json.loads((folder / "run.json").read_text())["run_id"]
    advice = f"workbench run {'fleet' if area == 'speedup' else area}"
    assert all(words in text for words in (run_id, "is missing", "no tables at all", advice))


@pytest.mark.parametrize(
    ("area", "table", "column"),
    [
        ("speedup", "applications", "predicted_low_s"),
        ("sizing", "estimates", "capacity"),
        ("indicators", "recommendations", "ratio"),
        ("scaletest", "sustained", "low_per_s"),
    ],
)
def test_a_missing_column_is_named_with_those_that_are_there(
    tmp_path: Path, area: str, table: str, column: str
) -> None:
    folder = change_table(MAKERS[area](tmp_path), table, lambda frame: frame.drop(column))
    text = told(lambda: READERS[area](folder))
    assert f"column(s) missing: {column}" in text
    assert f"table {table}" in text
    assert pl.read_parquet(Path(folder) / "tables" / f"{table}.parquet").columns[0] in text


def test_a_run_of_another_area_or_no_run_at_all_is_refused(tmp_path: Path) -> None:
    said = told(lambda: READERS["sizing"](str(speedup_run(tmp_path))))
    assert "another area" in said
    assert "workbench run sizing" in said
    assert "not a run folder" in told(lambda: READERS["sizing"](str(tmp_path)))


DECLARED = {
    capacity_tables.INPUT_APPLICATIONS: speedup_tables.APPLICATIONS,
    capacity_tables.INPUT_ESTIMATES: sizing_tables.ESTIMATES,
    capacity_tables.INPUT_SCALING: sizing_tables.SCALING,
    capacity_tables.INPUT_STEPS: sizing_tables.STEPS,
    capacity_tables.INPUT_RECOMMENDATIONS: indicator_tables.RECOMMENDATIONS,
    capacity_tables.INPUT_EFFECTS: indicator_tables.EFFECTS,
    capacity_tables.INPUT_SUSTAINED_RATES: scaletest_tables.SUSTAINED,
}


@pytest.mark.parametrize("table", DECLARED, ids=lambda table: table.name)
def test_what_a_plan_needs_is_what_the_area_declares(table: Table) -> None:
    area = DECLARED[table]
    assert area.name == table.name
    for mine in table.columns:
        theirs = area.column(mine.name)
        assert theirs.dtype == mine.dtype
        # Where the area may leave a null, the plan must be ready for it.
        assert mine.nullable or not theirs.nullable
    inputs_declared = [one.name for name, one in vars(capacity_tables).items() if name.startswith("INPUT_")]
    assert sorted(inputs_declared) == sorted(declared.name for declared in DECLARED)


@pytest.mark.parametrize(
    ("area", "table", "column", "value"),
    [
        ("speedup", "applications", "predicted_s", math.nan),
        ("speedup", "applications", "predicted_s", -5.0),
        ("sizing", "estimates", "capacity", 0.0),
        ("sizing", "estimates", "capacity", math.inf),
        ("sizing", "estimates", "test_gpus", 0),
        ("indicators", "recommendations", "ratio", -1.0),
    ],
)
def test_a_figure_that_cannot_be_is_refused_in_words(
    tmp_path: Path, area: str, table: str, column: str, value: float
) -> None:
    folder = change_table(
        MAKERS[area](tmp_path),
        table,
        lambda frame: frame.with_columns(pl.lit(value, dtype=frame.schema[column]).alias(column)),
    )
    told(lambda: READERS[area](folder).build_duration(ETL) if area == "speedup" else READERS[area](folder))


def test_a_rate_that_is_none_is_not_known(tmp_path: Path) -> None:
    for number, low in enumerate((math.nan, -1.0, math.inf)):
        found = load_scheduler(str(scale_run(tmp_path / str(number), low=low)), "")
        assert found.low_per_s is None


@pytest.mark.parametrize("level", [None, 0, 1, "high", True])
def test_a_level_that_is_none_is_the_houses_own(tmp_path: Path, level: object) -> None:
    folder = speedup_run(tmp_path, config={"level": level})
    assert load_jobs(str(folder)).level == 0.9


def test_samples_name_nothing_of_the_machine_that_recorded_them() -> None:
    for area in READERS:
        record = json.loads((SAMPLES / area / "run.json").read_text())
        assert set(record["host"]) == {"cpu_model", "cores", "memory_bytes", "accelerators"}
        texts = [json.dumps(record)]
        for path in (SAMPLES / area / "tables").iterdir():
            texts += [str(value) for column in pl.read_parquet(path).select(pl.col(pl.String)) for value in column]
        assert not [text for text in texts if any(part in text for part in ("/home/", "/root/", "/tmp/", "/work/"))]
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < 300_000


def test_a_law_carries_what_it_carries_where_it_was_fitted() -> None:
    law = ScalingLaw("USL", (1, 2, 4), 0.1, 0.02, 0.5, 0.3)
    assert law.most == gpu_estimates.MAX_GPU_EXTRAPOLATION * 4
    assert [law.scale_factor(gpus) for gpus in range(1, 9)] == [
        pytest.approx(
            gpu_estimates.capacity_by_law((1.0, law.contention, law.coherency, law.miss_cost, law.miss_rate), gpus)
        )
        for gpus in range(1, 9)
    ]


def sized_run(place: Path, asked: dict[str, Any]) -> Path:
    """A sizing run in virtual time, as the notebook writes it."""
    run = start_run("sizing", folder=place / "sized")
    found = build_sizing_study(NotebookConfig.model_validate(asked | {"truth_runs": 0}), run)
    run.conclude(found.verdict, found.reasons, found.answer)
    run.save()
    return run.folder


FLAT = ["slots=8", "calls=1", "router=random", "decode_base_s=0.02", "decode_per_sequence_s=0.00005"]
LAW: dict[str, Any] = {"users": 60, "goals": ["p95<=4.2"], "gpu_counts": [1, 2, 4], "service": FLAT}


@pytest.mark.parametrize(
    "made",
    [
        SAMPLES / "sizing",
        SAMPLES.parent / "gpu" / "sizing",
        {"users": 216, "goals": ["p95<=3.6"]},
        {"users": 100, "goals": ["p50<=1.7", "p95<=2.65"], "gpu_counts": [2], "service": ["slots=64"]},
        LAW | {"seed": 1},
        LAW | {"seed": 2},
    ],
)
def test_a_plan_for_the_load_of_a_run_has_the_gpus_of_that_run(tmp_path: Path, made: Any) -> None:
    run = made if isinstance(made, Path) else sized_run(tmp_path, made)
    rows = pl.read_parquet(run / "tables" / "estimates.parquet").to_dicts()
    load, recommended = rows[0]["load"], max(row["recommended"] for row in rows)
    day = {"users": [f"{load:g} hours=9"], "least_replicas": 0, "gpus_per_replica": 1, "accept_invalid": True}
    found = build_plan(config(**only(sizing=run), **day, draws=10_000))
    median = math.ceil(max(row["gpus"] for row in rows))
    assert found.get_figure(peak.SERVICE_GPUS)["p95"] == recommended
    assert found.get_figure(peak.SERVICE_GPUS)["p50"] == median
    assert re.search(rf"peak needs (\d+ to )?{recommended} GPUs", found.answer)
    assert f"edian: {median} GPU" in found.details[0] or median == recommended
    assert any(note.startswith(f"The sizing run recommends {recommended} GPU") for note in found.notes)


def test_a_plan_in_replicas_of_several_gpus_says_what_the_run_recommends(tmp_path: Path) -> None:
    run = sizing_run(tmp_path, load=100.0, gpus=5.0, gpus_low=4.5, gpus_high=5.0, recommended=5)
    found = build_plan(config(**only(sizing=run), users=["100 hours=9"]))
    assert "The sizing run recommends 5 GPUs for 100 users; whole replicas of 2 have 6." in found.notes
    assert re.search(r"peak needs (\d to )?6 GPUs", found.answer)
