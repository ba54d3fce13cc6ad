"""The real calculator of the NeMo Agent Toolkit drives the simulated service, and counts what it counts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.sizing import natenv
from tests.sizing.test_server import stat
from workbench.sizing.load.sweep_runner import run_sweep
from workbench.sizing.simulation.cluster_model import Service
from workbench.sizing.simulation.simulator_process import run_simulator

pytestmark = [pytest.mark.network, pytest.mark.timeout(1200)]

LEVELS = (1, 2, 4, 8)
# 0.1 s for a run that is alone; from 4 on it queues.
SERVICE = Service(slots=4, input_cv=0, output_cv=0, input_tokens=40, output_tokens=10, decode_base_s=0.005)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    natenv.require()
    found = tmp_path_factory.mktemp("peer")
    questions = [{"id": number, "question": f"question {number}", "answer": "none"} for number in range(16)]
    (found / "questions.json").write_text(json.dumps(questions))
    return found


def test_the_peer_sizes_the_simulated_service(folder: Path) -> None:
    config = natenv.workflow(folder, questions=folder / "questions.json")
    with run_simulator(SERVICE) as url:
        done = natenv.nat(
            *("sizing", "calc", "--config_file", config, "--endpoint", url, "--calc_output_dir", folder / "calc"),
            *("--concurrencies", ",".join(map(str, LEVELS)), "--num_passes", "2", "--test_gpu_count", "1"),
            *("--target_workflow_runtime", "0.15", "--target_llm_latency", "0.08", "--target_users", "40"),
            cwd=folder,
            plugins=natenv.plugin(folder),
        )
        counted = stat(url)
    assert done.returncode == 0, done.stderr[-2000:]
    written = next((folder / "calc").rglob("calc_runner_output.json"))
    found = json.loads(written.read_text())
    assert (counted["served"], counted["refused"], counted["peak"]) == (2 * sum(LEVELS), 0, max(LEVELS))
    assert sorted(map(int, found["calc_data"])) == list(LEVELS)
    for level in LEVELS:
        metrics = found["calc_data"][str(level)]["sizing_metrics"]
        items = metrics["per_item_metrics"].values()
        assert len(items) == 2 * level
        assert metrics["alerts"] == {"workflow_interrupted": False}
        # Prefill of 1 ms and ten tokens of 5.3 ms, twice, is the least that a run takes.
        assert min(item["workflow_runtime"] for item in items) > 0.107
        assert metrics["workflow_runtime_p95"] == pytest.approx(
            np.quantile([item["workflow_runtime"] for item in items], 0.95), rel=1e-6
        )
        assert 0.05 < metrics["llm_latency_p95"] < metrics["workflow_runtime_p95"]
    runtimes = [found["calc_data"][str(level)]["sizing_metrics"]["workflow_runtime_p95"] for level in LEVELS]
    # Eight runs share four slots: they take about twice as long, somewhat less where the client is slow to send.
    assert runtimes[3] > 1.3 * runtimes[0]
    assert found["gpu_estimates"]["gpu_estimate_by_wf_runtime"] is not None


def test_the_cap_of_nat_serve_is_found_and_named(folder: Path) -> None:
    # 40 model calls at once are no limit; the eight runs that the server admits at once are.
    config = natenv.workflow(folder, slots=40, calls=1, call_s=0.4)
    with natenv.serving(config, plugins=natenv.plugin(folder)) as url:
        sweep = run_sweep(
            url=url, users=[4, 24], least_samples=100, most_samples=120, min_step_s=0, timeout_s=60, processes=0
        )
    free, capped = sweep.points.sort("load").iter_rows(named=True)
    assert (free["n_ok"], capped["n_ok"]) == (free["n_kept"], capped["n_kept"])
    assert capped["in_flight"] > 20
    # Each run takes 0.4 s by the server's clock at both levels: that alone would size it three times too small.
    assert capped["server_in_service"] == pytest.approx(8, abs=1.5)
    assert capped["verdict"] == "server-limited"
    assert capped["reason"].startswith("server admits about 8")
    assert free["verdict"] != "server-limited"
