"""A server's own metrics: read of every known server, sampled beside the load, and never a reason to fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tests.fakes.nvml_library import ManagementLibrary
from tests.fakes.vllm_server import METRICS_FAULTS, vllm_server
from tests.sizing.making import row_of
from workbench.core import nvml
from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.sizing.charts import list_server_charts
from workbench.sizing.config import Goal, NotebookConfig, build_sweep_config
from workbench.sizing.estimation.server_bottleneck import summarize_server_metrics
from workbench.sizing.estimation.sizing_answer import compute_answer
from workbench.sizing.load.server_metrics import QUANTITIES, parse_server_metrics
from workbench.sizing.load.sweep_report import SweepResult
from workbench.sizing.load.sweep_runner import run_sweep
from workbench.sizing.study import build_study
from workbench.sizing.tables import SERVER_METRICS

RECORDED = Path(__file__).parent / "recorded" / "vllm.txt"
QUICK: dict[str, Any] = {"least_samples": 60, "most_samples": 60, "min_step_s": 0, "processes": 0}
TARGET: dict[str, Any] = {"protocol": "openai", "model": "m", "metrics_every_s": 0.05}


def test_a_page_of_vllm_is_read_over_its_engines() -> None:
    assert parse_server_metrics(RECORDED.read_text()) == dict.fromkeys(QUANTITIES) | {
        "running": 21.0,
        "waiting": 3.0,
        "kv_cache": 0.9710982658959537,
        "preemptions": 7.0,
        "prompt_tokens": 51234.0,
        "generated_tokens": 9876.0,
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tgi_queue_size 4\ntgi_batch_current_size 8\n", {"waiting": 4, "running": 8}),
        (
            'tgi_request_generated_tokens_sum 900\ntgi_request_generated_tokens_bucket{le="+Inf"} 3\n',
            {"generated_tokens": 900},
        ),
        (
            'nv_trt_llm_request_metrics{model="t",request_type="waiting",version="1"} 5\n'
            'nv_trt_llm_request_metrics{model="t",request_type="scheduled",version="1"} 6\n'
            'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="t"} 30\n'
            'nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="max",model="t"} 40\n',
            {"waiting": 5, "running": 6, "kv_cache": 0.75},
        ),
        ('nv_inference_pending_request_count{model="a"} 2\n', {"waiting": 2}),
        (
            'gpu_cache_usage_perc{model_name="m"} 0.5\nnum_requests_running 3\nnum_requests_waiting 1\n',
            {"kv_cache": 0.5, "running": 3, "waiting": 1},
        ),
        (
            "active_requests_count 3\nwaiting_requests_count 2\nkv_cache_memory_bytes 3e9\n"
            "kv_cache_free_memory_bytes 1e9\n",
            {"running": 3, "waiting": 2, "kv_cache": 0.75},
        ),
        (
            'DCGM_FI_DEV_GPU_UTIL{gpu="0"} 80\nDCGM_FI_DEV_GPU_UTIL{gpu="1"} 40\n'
            'DCGM_FI_DEV_FB_USED{gpu="0"} 30\nDCGM_FI_DEV_FB_FREE{gpu="0"} 10\n',
            {"gpu_busy": pytest.approx(0.6), "gpu_memory": 0.75},
        ),
        # What DCGM writes for a field that a GPU does not have is no utilization.
        ('DCGM_FI_DEV_GPU_UTIL{gpu="0"} 9223372036854775794\ntgi_queue_size 1\n', {"gpu_busy": None, "waiting": 1}),
        ("tgi_queue_size NaN\ntgi_batch_current_size 2\n", {"waiting": None, "running": 2}),
        ("sglang:token_usage -1\nsglang:num_running_reqs 2\n", {"kv_cache": None, "running": 2}),
        # A line of another name is not read, however broken it is.
        ("tgi_queue_size 4\nother{ 3\n", {"waiting": 4}),
    ],
)
def test_every_known_server_is_read(text: str, expected: dict[str, Any]) -> None:
    found = parse_server_metrics(text)
    assert {name: found[name] for name in expected} == expected
    assert set(found) == set(QUANTITIES)


@pytest.mark.parametrize("text", ["", "<html></html>", "other 3\n", 'tgi_queue_size{"x 3\n', "tgi_queue_size x\n"])
def test_what_is_no_page_of_a_known_server_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        parse_server_metrics(text)


def samples(rows: list[dict[str, Any]]) -> pl.DataFrame:
    return SERVER_METRICS.frame([row_of(SERVER_METRICS, step=0, at_s=float(at)) | row for at, row in enumerate(rows)])


@pytest.mark.parametrize(
    ("rows", "binds"),
    [
        ([{"waiting": 1.0}] * 5 + [{"waiting": 0.0}] * 5, "queue"),
        ([{"waiting": 1.0}] * 4 + [{"waiting": 0.0}] * 6, None),
        ([{"waiting": 3.0, "kv_cache": 0.97}] * 8, "kv cache"),
        ([{"waiting": 0.0, "kv_cache": 0.94}] * 8, None),
        # Preempted once the cache was full, though only for a moment.
        ([{"kv_cache": 0.5, "preemptions": 3.0}] * 7 + [{"kv_cache": 1.0, "preemptions": 5.0}], "kv cache"),
        ([{"kv_cache": 0.5, "preemptions": 3.0}] * 8, None),
        ([{"waiting": 9.0}] * 3, None),
        # Before the first and after the last kept request nothing counts.
        ([{"waiting": 0.0}] * 10 + [{"waiting": 9.0}] * 20, None),
        ([{"running": 3.0}] * 8, None),
    ],
)
def test_what_binds_needs_half_of_the_samples(rows: list[dict[str, Any]], binds: str | None) -> None:
    assert summarize_server_metrics(samples(rows), 0.0, 9.5)["server_binds"] == binds


@pytest.mark.parametrize(
    ("row", "in_flight", "binds"),
    [
        ({"gpu_busy": 0.09}, 16.0, "host"),
        # One request is in flight for 63 % of the time where one is in the mean: half of that is 32 %.
        ({"gpu_busy": 0.3}, 1.0, "host"),
        ({"gpu_busy": 0.4}, 1.0, None),
        ({"gpu_busy": 0.02}, 0.05, "host"),
        ({"gpu_busy": 0.03}, 0.05, None),
        ({"gpu_busy": 0.6}, 99.0, None),
        ({"gpu_busy": 0.09, "waiting": 2.0}, 16.0, "queue"),
        ({"gpu_busy": 0.09}, None, None),
        ({"gpu_power_w": 80.0}, 16.0, None),
    ],
)
def test_gpus_that_wait_while_requests_are_in_flight_do_not_bind(
    row: dict[str, Any], in_flight: float | None, binds: str | None
) -> None:
    assert summarize_server_metrics(samples([row] * 8), 0.0, 9.5, in_flight)["server_binds"] == binds


def test_a_counter_that_was_reset_is_not_known() -> None:
    found = summarize_server_metrics(samples([{"preemptions": 9.0}, {"preemptions": 2.0}]), 0.0, 9.0)
    assert found["preemptions"] is None


CASES = {
    "queue": ({"max_seqs": 4}, "requests wait in the server"),
    "kv cache": ({"cache_blocks": 4}, "the KV cache is full"),
    "neither": ({}, None),
}


@pytest.mark.live
@pytest.mark.parametrize("case", CASES)
def test_what_binds_is_named_in_three_constructed_cases(case: str, tmp_path: Path) -> None:
    settings, words = CASES[case]
    goals = [Goal(limit_s=0.12)]
    with vllm_server(**settings) as (url, server):
        metrics = f"{url}/metrics"
        found = run_sweep(url=url, metrics_url=metrics, users=[2, 12], goals=goals, out=tmp_path, **QUICK, **TARGET)
        assert server.n_scrapes > 10
    assert found.points["server_binds"].to_list() == ([None, None if words is None else case])
    answer = compute_answer(found.requests, found.steps, goals, 40, server_metrics=found.server_metrics)
    plain = compute_answer(found.requests, found.steps, goals, 40)
    assert answer.estimates.equals(plain.estimates), "metrics change no number"
    if words is None:
        assert not any("server" in note or "KV" in note for note in found.notes)
        return
    assert any(note.startswith("12 users: ") and words in note for note in found.notes)
    if answer.recommended is not None:
        assert any(words in detail for detail in answer.details)
    # The table is in the folder, and the report draws it without the server.
    assert found.folder is not None
    table = run_folder.load_run(found.folder).read_table(SERVER_METRICS)
    assert table["generated_tokens"].max() >= 2 * 60 * 4  # type: ignore[operator]
    assert table.filter(step=1)["running"].max() == 4
    config = NotebookConfig(users=40, goals=["p95<=0.12"], sweep=[str(found.folder)])
    study = build_study(config, run_folder.start_run("sizing", tmp_path / "report"))
    assert any(words in note for note in study.notes)
    drawn = [json.dumps(chart.to_dict()) for chart in list_server_charts(study.found.points)]
    assert ["Requests in the server" in drawn[0], "KV cache of the server" in drawn[1]] == [True, True]


@pytest.mark.live
def test_without_metrics_nothing_is_drawn_and_nothing_said() -> None:
    with vllm_server() as (url, _):
        found = run_sweep(url=url, users=[2], **QUICK, **TARGET)
    assert found.points["server_samples"].to_list() == [None]
    assert list_server_charts(found.points) == []
    assert found.notes == []


@pytest.mark.live
def test_gpus_of_this_machine_are_sampled_beside_what_the_server_says(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ManagementLibrary()
    monkeypatch.setattr(nvml, "_load_library", lambda: library)
    with vllm_server(time_s=0.01) as (url, _):
        found = run_sweep(url=url, metrics_url=f"{url}/metrics", gpu_metrics=True, users=[2], **QUICK, **TARGET)
    assert_unhurt(found)
    assert set(found.server_metrics["gpu_power_w"]) == {650.25}
    assert set(found.server_metrics["gpu_clock_mhz"]) == {1755.0}
    assert set(found.server_metrics["gpu_memory"]) == {2 / 80}
    assert found.server_metrics["running"].null_count() == 0
    assert found.points["gpu_power_w"].to_list() == [650.25]
    assert library.open == 0


@pytest.mark.live
def test_a_gpu_that_goes_away_is_counted_and_never_hurts_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ManagementLibrary()
    monkeypatch.setattr(nvml, "_load_library", lambda: library)
    monkeypatch.setattr(library, "nvmlDeviceGetHandleByIndex_v2", lambda *_: 15)
    with vllm_server(time_s=0.01) as (url, _):
        found = run_sweep(url=url, gpu_metrics=True, users=[2], **QUICK, **TARGET)
    assert_unhurt(found)
    assert found.server_metrics.height == 0
    assert any("no GPU 0 (error 15)" in note for note in found.notes)


@pytest.mark.live
def test_gpu_metrics_without_a_driver_are_refused_before_any_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARIES", ("libno-such-thing.so.1",))
    with vllm_server() as (url, server), pytest.raises(ConfigError, match=r"(?s)--gpu-metrics.*dcgm-exporter"):
        run_sweep(url=url, gpu_metrics=True, users=[2], **QUICK, **TARGET)
    assert server.prompt_tokens == 0


CORE = ("slow", "html")


@pytest.mark.live
@pytest.mark.parametrize(
    "fault", [one if one in CORE else pytest.param(one, marks=pytest.mark.slow) for one in METRICS_FAULTS]
)
def test_a_bad_metrics_page_never_hurts_the_sweep(fault: str) -> None:
    with vllm_server(fault=fault, time_s=0.01) as (url, server):
        found = run_sweep(url=url, metrics_url=f"{url}/metrics", users=[4], **QUICK, **TARGET)
        assert server.n_scrapes
    assert_unhurt(found)
    assert found.server_metrics.height == 0
    # An answer that is still awaited at the end is no failure.
    assert fault == "slow" or any("there is no sample" in note for note in found.notes)
    assert "<script>" not in "".join(found.notes)


def assert_unhurt(found: SweepResult) -> None:
    """All that was sent succeeded; how late a busy machine made the client is not judged here."""
    assert found.ended == "finished"
    assert set(found.requests["outcome"]) == {"ok"}
    assert found.points["n_kept"][0] >= QUICK["least_samples"]
    assert not {"interrupted", "not sustained", "admission limit"} & set(found.points["verdict"])


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://x/metrics", "metrics", "http://u:p@x/m", "http://x/?token=1"]
)
def test_only_http_addresses_without_secrets_are_taken(url: str) -> None:
    with pytest.raises(ConfigError, match="metrics_url"):
        build_sweep_config(url="http://127.0.0.1:8000", metrics_url=url, users=[1])
