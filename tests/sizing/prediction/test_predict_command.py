"""`workbench sizing predict` on a simulated predictor: answer, run folder, forecast, refusals."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from tests.fakes.simulated_predictor import SimulatedPredictor
from tests.sizing.conftest import Sizing
from workbench.forecasts import matching
from workbench.forecasts.ledger import Ledger, append_entries, default_ledger
from workbench.runs import run_folder
from workbench.runs.catalogue import open_run
from workbench.sizing.config import Goal, SweepConfig, build_sweep_config
from workbench.sizing.load import sweep_journal
from workbench.sizing.prediction import aisimulate
from workbench.sizing.prediction.aisimulate import Deployment
from workbench.sizing.prediction.predicted_sweep import TimeFactors, predict_step
from workbench.sizing.tables import ESTIMATES, PREDICTIONS

ASKED = ("predict", "--model", "a/model", "--gpu", "h100_sxm,h200_sxm", "--tensor", "1,2")
GOAL = ("--goal", "p95<=12", "--input-tokens", 1000, "--output-tokens", 101)


@pytest.fixture(autouse=True)
def simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def open_simulated(*_: object) -> Iterator[SimulatedPredictor]:
        yield SimulatedPredictor()

    monkeypatch.setattr(aisimulate, "open_predictor", open_simulated)


def test_the_answer_names_the_type_its_interval_and_that_nothing_was_measured(sizing: Sizing, tmp_path: Path) -> None:
    code, out, _ = sizing(*ASKED, *GOAL, "--target-users", 300, "--out", tmp_path)
    assert code == 0
    assert "serve 300 users at runtime p95 <= 12 s" in out
    assert "note: predicted, not measured" in out
    assert "measured services on vllm" in out
    run = run_folder.load_run(next((tmp_path / "sizing").iterdir()))
    assert (run.verdict, run.record["conditions"]) == ("valid", ["predicted, not measured"])
    row = run.read_table(PREDICTIONS).filter("chosen").row(0, named=True)
    assert run.read_table(ESTIMATES)["recommended"].to_list() == [row["gpus_high"]]


def test_a_prediction_is_a_forecast_that_a_measured_sweep_of_that_type_scores(
    sizing: Sizing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("predict", "--model", "a/model", "--gpu", "h100_sxm", "--tensor", 1, *GOAL, "--target-users", 300)
    code, out, _ = sizing(*words, "--out", tmp_path / "predicted", "--json")
    assert code == 0
    predicted = open_run(json.loads(out)["folder"])
    now = datetime.now(UTC)
    kept = matching.build_forecasts(predicted, now)
    assert [(entry.subject, entry.quantity) for entry in kept] == [
        ("runtime p95 <= 12 s, 300 users, a/model on h100_sxm", "GPUs")
    ]
    for gpu_type, n_matched in (("h100_sxm", 1), ("l40s", 0), ("", 0)):
        config = build_sweep_config(
            protocol="openai",
            url="http://127.0.0.1:9",
            model="a/model",
            gpu_type=gpu_type,
            gpus=8,
            users=[100, 300, 500],
            goals=[Goal.read("p95<=12")],
            input_tokens=1000,
            output_tokens=101,
            output_cv=0.4,
        )
        folder = keep_sweep(tmp_path / f"measured-{gpu_type}", config, SimulatedPredictor(slower=0.015))
        assert sizing("estimate", folder, "--target-users", 300)[0] == 0
        # Long before: two runs of one second have no order.
        ledger = Ledger(
            {entry.id: entry.model_copy(update={"made_at": now - timedelta(days=1)}) for entry in kept}, (), 0
        )
        rows = matching.match_run(ledger, open_run(folder), now, measured_at=now - timedelta(hours=1))
        assert sum(row.status == "matched" for row in rows) == n_matched
        if n_matched:
            monkeypatch.setenv("WORKBENCH_OUT", str(tmp_path))
            outcomes = [row.outcome for row in rows if row.outcome is not None]
            entries = [*ledger.forecasts.values(), *outcomes]
            append_entries(default_ledger(), lambda _, new=entries: new)
            told = json.loads(sizing(*words, "--out", tmp_path / "again", "--json").out)["earlier"]
            assert "of 1 such forecasts lay in their interval" in told


def keep_sweep(out: Path, config: SweepConfig, service: SimulatedPredictor) -> Path:
    """A sweep of a service whose times are a formula, in a folder as `run` leaves it."""
    journal = sweep_journal.create_sweep_journal(config, out=out, keep=True, prompts={}, command=None)
    one = Deployment(model="a/model", gpu="h100_sxm")
    for place, users in enumerate(config.users or ()):
        requests, step = predict_step(service, one, config, users, TimeFactors(), number=place)  # type: ignore[arg-type]
        step = step.with_columns(gpus=pl.lit(config.gpus, dtype=pl.Int64))
        journal.add_step(requests, step, sweep_journal.StepNote(step=place))
    journal.mark_complete()
    assert journal.folder is not None
    return journal.folder


def test_an_anchor_corrects_the_prediction(sizing: Sizing, tmp_path: Path) -> None:
    config = build_sweep_config(
        protocol="openai",
        url="http://127.0.0.1:9",
        model="a/model",
        users=[2, 8, 24],
        simulated=True,
        input_tokens=1000,
        output_tokens=101,
        input_cv=0.4,
        output_cv=0.4,
    )
    folder = keep_sweep(tmp_path, config, SimulatedPredictor(decode_s=0.02))
    words = (*ASKED, *GOAL, "--target-users", 300, "--out", tmp_path / "out", "--json")
    code, out, _ = sizing(*words, "--anchor", f"h100_sxm={folder}")
    found = json.loads(out)
    assert code == 0
    rows = pl.DataFrame(found["predictions"])
    assert rows["decode_factor"].to_list() == pytest.approx([2.0] * 4, rel=0.05)
    assert [level["load"] for level in found["anchor_levels"]] == [2, 8, 24]
    assert "3 measured levels on h100_sxm x 1, vllm" in " ".join(found["details"])


def test_an_anchor_of_another_server_is_refused_in_the_verdict(sizing: Sizing, tmp_path: Path) -> None:
    config = build_sweep_config(
        protocol="openai",
        url="http://127.0.0.1:9",
        model="a/model",
        users=[2, 8],
        simulated=True,
        input_tokens=1000,
        output_tokens=101,
        output_cv=0.4,
    )
    folder = keep_sweep(tmp_path, config, SimulatedPredictor(decode_s=0.6))
    words = (*ASKED, "--goal", "p95<=900", "--target-users", 300, "--out", tmp_path / "out")
    code, out, _ = sizing(*words, "--anchor", f"h100_sxm={folder}")
    assert code == 1
    assert "invalid: the anchor's decode takes 60 times the predicted time" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("predict", "--gpu", "h100_sxm", "--target-users", 9, *GOAL), "no model"),
        ((*ASKED, "--target-users", 9), "no goal"),
        ((*ASKED, *GOAL), "how many users?"),
        (("predict", "--model", "m", "--gpu", "h999", "--target-users", 9, *GOAL), "no measured kernels"),
        ((*ASKED, *GOAL, "--target-users", 9, "--gpu-price", "h100_sxm=cheap"), "not a price"),
        ((*ASKED, *GOAL, "--target-users", 9, "--anchor", "sweep"), "not a GPU type and a sweep"),
        ((*ASKED, *GOAL, "--target-users", 9, "--anchor", "h100_sxm=nowhere"), "no sweep here"),
        ((*ASKED, *GOAL, "--target-users", 9, "--backend", "tgi"), "backend"),
        ((*ASKED, *GOAL, "--target-users", 9, "--backend", "vllm,sglang", "--anchor", "h100_sxm=x"), "of one server"),
        (("predict", "--model", "m", "--gpu", "../x", "--target-users", 9, *GOAL), "deployment"),
    ],
)
def test_what_is_wrong_is_told_and_exits_with_2(sizing: Sizing, words: tuple[object, ...], told: str) -> None:
    code, _, err = sizing(*words)
    assert (code, told in err) == (2, True), err


def test_no_answer_exits_with_1_and_says_why(sizing: Sizing, tmp_path: Path) -> None:
    code, out, _ = sizing(*ASKED, "--goal", "p95<=0.3", "--target-users", 9, "--out", tmp_path)
    assert code == 1
    assert "No predicted GPU count for 9 users" in out
    assert "invalid: h100_sxm x 1, vllm: not within the goal" in out
