"""What the notebook of a pair does where it is told to: record one (planted here), and predict by RAPIDS' scripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SAMPLES
from workbench.core.errors import ConfigError
from workbench.runs import run_folder
from workbench.speedup.config import PairConfig, RecordConfig
from workbench.speedup.recording import recorder, recording_plan
from workbench.speedup.study import PairStudy, build_study

SAMPLE = SAMPLES / "speedup" / "tpcds-sf0.05"


def test_a_pair_is_recorded_into_the_run_folder_and_read_from_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[RecordConfig] = []

    def record(config: RecordConfig, *, say: recorder.Say) -> recorder.RecordingOutcome:
        say("recording")
        asked.append(config)
        config.out.symlink_to(SAMPLE)
        return recorder.RecordingOutcome(recording_plan.load_recording(config.out))

    monkeypatch.setattr(recorder, "record_suite", record)
    monkeypatch.setenv("WORKBENCH_RUN_DIR", str(tmp_path / "other"))
    run = run_folder.start_run("speedup", tmp_path)
    config = PairConfig(recording_folder="none", record=True, suite="tpcds", only=["q1"], sessions=2)
    found = build_study(config, run)
    assert isinstance(found, PairStudy)
    (wanted,) = asked
    assert (wanted.queries, wanted.engines, wanted.only) == ("tpcds", ["spark", "comet"], ["q1"])
    assert (wanted.n_sessions, wanted.out) == (2, run.folder / "recording")
    with pytest.raises(ConfigError, match="not a pair"):
        build_study(config.model_copy(update={"engines": ["spark"]}), run)


@pytest.mark.slow
def test_the_scripts_of_rapids_predict_beside_and_leave_their_files(tmp_path: Path) -> None:
    run = run_folder.start_run("speedup", tmp_path)
    config = PairConfig(recording_folder=str(SAMPLES / "speedup" / "tpch-sf1"), seed_method=True)
    found = build_study(config, run)
    assert isinstance(found, PairStudy)
    assert "seed" in found.scores["predictor"].to_list()
    assert "seed_factors.csv" in found.left_out_answer
    assert (run.folder / "seed_factors.csv").read_text().startswith("CPUOperator,Score\n")
    assert len(list((run.folder / "rapids_4_spark_profile").iterdir())) == 2
    facts_only = build_study(config.model_copy(update={"recording_folder": str(SAMPLE)}), run)
    assert isinstance(facts_only, PairStudy)
    assert "RAPIDS' scripts need logs" in facts_only.left_out_answer
