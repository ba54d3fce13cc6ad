"""Results of other tools as people bring them: mixed loads, buffered streams, old versions, nothing left."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from workbench.core.errors import InputError
from workbench.sizing.config import Goal
from workbench.sizing.estimation.sweep_store import TargetLoad, estimate_sweeps
from workbench.sizing.load.client_messages import BUFFERED, OTHER_COUNT
from workbench.sizing.other_tools.sweep_import import ImportResult, import_sweep

SERVICE_S = 0.5


def queue(rate: float, seconds: float, servers: int = 8) -> list[tuple[float, float]]:
    """Due and end of requests of a FIFO queue with constant arrivals and gamma service times."""
    rng, free = random.Random(1), [0.0] * servers
    rows = []
    for number in range(int(rate * seconds)):
        due = number / rate
        place = min(range(servers), key=free.__getitem__)
        free[place] = max(due, free[place]) + rng.gammavariate(11, SERVICE_S / 11)
        rows.append((due, free[place]))
    return rows


def guidellm_request(due: float, end: float, tokens: int = 32, **more: Any) -> dict[str, Any]:
    first = due + 0.1 * (end - due)
    timings = {"targeted_start": due, "request_start": due, "first_token_iteration": first}
    timings |= {"last_token_iteration": end, "request_end": end} | more
    return {"info": {"timings": timings}, "input_metrics": {}, "output_metrics": {"total_tokens": tokens}}


def guidellm(path: Path, *benchmarks: tuple[dict[str, Any], list[dict[str, Any]]]) -> Path:
    listed = [
        {"config": {"strategy": strategy}, "requests": {"successful": requests, "errored": [], "incomplete": []}}
        for strategy, requests in benchmarks
    ]
    path.write_text(json.dumps({"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": listed}))
    return path


def brought(path: Path, tmp_path: Path, *goals: str) -> ImportResult:
    return import_sweep(path, gpus=1, goals=[Goal.read(goal) for goal in goals], out=tmp_path / "out")


def shifted(rows: list[tuple[float, float]], by: float, **more: Any) -> list[dict[str, Any]]:
    return [guidellm_request(by + due, by + end, **more) for due, end in rows]


def test_a_mixed_profile_is_sized_by_the_levels_that_fit_and_the_others_are_named(tmp_path: Path) -> None:
    levels = [({"type_": "synchronous"}, shifted(queue(2, 60, servers=1), 0))]
    levels += [
        ({"type_": "constant", "rate": rate}, shifted(queue(rate, 60), 1000 * place))
        for place, rate in enumerate((4, 8, 12, 14, 15, 17), 1)
    ]
    kept = brought(guidellm(tmp_path / "benchmarks.json", *levels), tmp_path, "p95<=0.9")
    assert kept.usable
    assert kept.imported.notes[-1].startswith("1 levels in users together with 6 rates")
    found = estimate_sweeps([kept.folder], TargetLoad(100.0, "1/s"), None, None, 100, 0)
    assert found.recommended in (7, 8)
    assert found.left_out == "1 levels of another kind of load are excluded"
    with pytest.raises(InputError):
        estimate_sweeps([tmp_path], TargetLoad(100.0, "1/s"), None, None, 100, 0)


def test_what_nothing_is_left_of_is_not_valid(tmp_path: Path) -> None:
    rows = shifted([(0.002 + place / 1e4, 24.9 + place / 1e4) for place in range(4)], 0)
    kept = brought(guidellm(tmp_path / "benchmarks.json", ({"type_": "concurrent", "streams": 4}, rows)), tmp_path)
    assert not kept.usable
    record = json.loads((kept.folder / "run.json").read_text())
    assert record["verdict"] == "invalid"
    assert record["reasons"][0].startswith("no request is left to judge: of 4")


@pytest.mark.parametrize(
    ("more", "note", "itl_ms"),
    [
        ({}, None, 0.9 * 500 / 31),
        ({"token_iterations": 33}, None, 0.9 * 500 / 31),
        # Four tokens an event, or tokens that were never streamed: the file does not tell which.
        ({"token_iterations": 8}, OTHER_COUNT, None),
        ({"first_token_iteration": None, "last_token_iteration": None}, None, None),
    ],
)
def test_the_time_between_tokens_is_over_those_after_the_first_event(
    more: dict[str, Any], note: str | None, itl_ms: float | None, tmp_path: Path
) -> None:
    rows = [guidellm_request(place * 0.6, place * 0.6 + 0.5, **more) for place in range(40)]
    kept = brought(guidellm(tmp_path / "benchmarks.json", ({"type_": "synchronous"}, rows)), tmp_path)
    requests = pl.read_parquet(kept.folder / "tables" / "requests.parquet")
    assert set(requests["stream"]) == {note}
    assert requests["itl_s"][0] == (None if itl_ms is None else pytest.approx(itl_ms / 1e3))


def test_a_buffered_stream_has_no_token_times_and_goals_on_them_are_refused(tmp_path: Path) -> None:
    levels = []
    for place, users in enumerate((1, 2, 4)):
        rows = [(n * SERVICE_S, (n + 1) * SERVICE_S) for n in range(300)]
        requests = [guidellm_request(due + 1000 * place, end + 1000 * place) for due, end in rows for _ in range(users)]
        for request in requests:
            timings = request["info"]["timings"]
            timings["first_token_iteration"] = timings["last_token_iteration"]
        levels.append(({"type_": "concurrent", "streams": users}, requests))
    kept = brought(guidellm(tmp_path / "benchmarks.json", *levels), tmp_path, "itl p50<=50ms", "p95<=9")
    requests = pl.read_parquet(kept.folder / "tables" / "requests.parquet")
    assert (set(requests["stream"]), requests["itl_s"].count(), requests["ttft_s"].count()) == ({BUFFERED}, 0, 0)
    reasons = dict(
        estimate_sweeps([kept.folder], TargetLoad(4.0, "users"), None, None, 50, 0)
        .estimates.select("metric", "reason")
        .iter_rows()
    )
    assert reasons["itl"].startswith("itl was not measured: the stream did not come token by token")
    assert "not measured" not in (reasons["runtime"] or "")


def old_guidellm(tmp_path: Path) -> Path:
    requests = [
        {"start_time": n * 0.5, "end_time": n * 0.5 + 0.5, "first_token_time": n * 0.5 + 0.1, "output_tokens": 5}
        for n in range(30)
    ]
    one = {"type_": "generative_benchmark", "args": {"strategy": {"type_": "concurrent", "streams": 1}}}
    one |= {"requests": {"successful": requests, "errored": [], "incomplete": []}}
    path = tmp_path / "benchmarks.json"
    path.write_text(json.dumps({"benchmarks": [one]}))
    return path


def old_aiperf(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    lines = [
        {"metadata": {"request_start_ns": n * 10**9, "request_end_ns": n * 10**9 + 5 * 10**8}, "metrics": {}}
        for n in range(30)
    ]
    (folder / "profile_export.jsonl").write_text("\n".join(map(json.dumps, lines)))
    config = {"endpoint": {"timeout_seconds": 600.0}, "loadgen": {"concurrency": 1}}
    document = {"aiperf_version": "0.9.0", "input_config": config}
    (folder / "profile_export_aiperf.json").write_text(json.dumps(document))
    return folder


def vllm(tmp_path: Path) -> Path:
    n = 30
    document = {
        "num_prompts": n,
        "request_throughput": 2.0,
        "request_rate": "inf",
        "max_concurrency": 1,
        "input_lens": [9] * n,
        "output_lens": [9] * n,
        "ttfts": [0.1] * n,
        "itls": [[0.05] * 8] * n,
        "errors": [""] * n,
        "start_times": [place * 0.5 for place in range(n)],
    }
    path = tmp_path / "vllm.json"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("make", "tool", "runtime_s"), [(old_guidellm, "guidellm", 0.5), (old_aiperf, "aiperf", 0.5), (vllm, "vllm", 0.5)]
)
def test_results_of_other_versions_and_of_vllm_are_read(make: Any, tool: str, runtime_s: float, tmp_path: Path) -> None:
    kept = brought(make(tmp_path), tmp_path)
    assert kept.imported.tool == tool
    requests = pl.read_parquet(kept.folder / "tables" / "requests.parquet")
    assert requests.height == 30
    assert set(requests["runtime_s"].round(6)) == {runtime_s}
    if tool == "vllm":
        assert set(requests["itl_s"].round(6)) == {0.05}


def test_a_vllm_result_without_times_of_requests_says_what_to_do(tmp_path: Path) -> None:
    path = vllm(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"start_times": []}))
    with pytest.raises(InputError, match="no times of single requests") as caught:
        brought(path, tmp_path)
    assert "--save-detailed" in str(caught.value)


def inference_perf(folder: Path, *stages: tuple[dict[str, Any], list[tuple[float, float]]], **load: Any) -> Path:
    """A report folder: the entries of all stages in a shuffled order, as several workers write them."""
    folder.mkdir()
    entries = []
    for number, (summary, rows) in enumerate(stages):
        sent = [due for due, _ in rows]
        summary = {"count": len(rows), "send_duration": max(sent) - min(sent)} | summary
        (folder / f"stage_{number}_lifecycle_metrics.json").write_text(json.dumps({"load_summary": summary}))
        for due, end in rows:
            # Eleven events from the first token on, each of about two tokens by the server's count.
            times = [due + 0.1 + place * (end - due - 0.1) / 10 for place in range(11)]
            response = {"output_tokens": 40, "server_usage": {"completion_tokens": 22}, "chunk_times": times}
            entries.append(
                {"start_time": due, "end_time": end, "error": None}
                | {"info": {"input_tokens": 7, "response_metrics": response}}
            )
    random.Random(2).shuffle(entries)
    (folder / "per_request_lifecycle_metrics.json").write_text(json.dumps(entries))
    (folder / "config.yaml").write_text(json.dumps({"load": load}))
    return folder


def test_requests_of_inference_perf_are_told_apart_by_the_stages_reports(tmp_path: Path) -> None:
    stages = [
        ({"requested_rate": rate}, [(100 * rate + a, 100 * rate + b) for a, b in queue(rate, 60)]) for rate in (4, 8)
    ]
    kept = brought(inference_perf(tmp_path / "reports", *stages, type="constant"), tmp_path)
    assert [(step.arrivals, step.rate_per_s, len(step.requests)) for step in kept.imported.steps] == [
        ("constant", 4, 240),
        ("constant", 8, 480),
    ]
    request = kept.imported.steps[0].requests[0]
    # 22 tokens in eleven events: several an event, or some that were never streamed.
    assert (request.output_tokens, request.later_tokens, request.stream) == (None, None, OTHER_COUNT)
    assert request.first_token_s == pytest.approx(0.1)
    assert kept.imported.notes == ["latencies count from sending: the file does not say when a request was due"]


def test_stages_of_users_are_read_and_failures_classified(tmp_path: Path) -> None:
    folder = inference_perf(tmp_path / "reports", ({"requested_rate": 9.0, "concurrency": 3}, queue(4, 10, servers=3)))
    entries = json.loads((folder / "per_request_lifecycle_metrics.json").read_text())
    entries[3] |= {"error": {"error_type": "TimeoutError", "error_msg": ""}}
    (folder / "per_request_lifecycle_metrics.json").write_text(json.dumps(entries))
    (step,) = brought(folder, tmp_path).imported.steps
    assert (step.users, step.rate_per_s) == (3, None)
    assert [request.outcome for request in step.requests if request.outcome != "ok"] == ["timeout"]


REASONED = {"completion_tokens": 11, "completion_tokens_details": {"reasoning_tokens": 3}}


@pytest.mark.parametrize(
    ("more", "is_known"),
    [
        ({"response": 'data: {"choices": [{"delta": {"reasoning_content": "Hm"}}]}'}, False),
        ({"response": 'data: {"choices": [{"delta": {"reasoning": "", "content": "Yes"}}]}', "usage": REASONED}, True),
        ({"usage": REASONED}, False),
        ({}, True),
    ],
)
def test_a_first_text_after_reasoning_is_no_first_token(tmp_path: Path, more: dict[str, Any], is_known: bool) -> None:
    folder = inference_perf(tmp_path / "reports", ({"requested_rate": 9.0, "concurrency": 3}, queue(4, 10, servers=3)))
    entries = json.loads((folder / "per_request_lifecycle_metrics.json").read_text())
    for entry in entries:
        entry["response"] = more.get("response")
        entry["info"]["response_metrics"]["server_usage"] = more.get("usage", {"completion_tokens": 11})
    (folder / "per_request_lifecycle_metrics.json").write_text(json.dumps(entries))
    kept = brought(folder, tmp_path)
    assert {request.first_token_s is not None for request in kept.imported.steps[0].requests} == {is_known}
    assert any("had reasoning before" in note for note in kept.imported.notes) == (not is_known)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda folder: (folder / "stage_1_lifecycle_metrics.json").unlink(), "do not fit together"),
        (lambda folder: (folder / "per_request_lifecycle_metrics.json").write_text("[]"), "do not fit together"),
        (lambda folder: (folder / "per_request_lifecycle_metrics.json").write_text("{"), "not in the expected format"),
    ],
)
def test_a_report_folder_with_a_hole_is_refused(tmp_path: Path, spoil: Any, told: str) -> None:
    stages = [({"requested_rate": 4}, queue(4, 5)), ({"requested_rate": 8}, [(a + 50, b + 50) for a, b in queue(8, 5)])]
    folder = inference_perf(tmp_path / "reports", *stages)
    spoil(folder)
    with pytest.raises(InputError, match=told):
        brought(folder, tmp_path)


def test_stages_that_overlap_are_not_told_apart_and_refused(tmp_path: Path) -> None:
    rows = queue(4, 20)
    folder = inference_perf(
        tmp_path / "reports", ({"requested_rate": 2}, rows[::2]), ({"requested_rate": 2}, rows[1::2])
    )
    with pytest.raises(InputError, match="cannot be distinguished from those of others"):
        brought(folder, tmp_path)


def test_summaries_of_inference_perf_alone_are_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = inference_perf(tmp_path / "reports", ({"requested_rate": 2}, queue(2, 5)))
    (folder / "per_request_lifecycle_metrics.json").unlink()
    with pytest.raises(InputError, match="per_request: true"):
        import_sweep(folder, gpus=1, tool="inference-perf", out=tmp_path / "out")
