"""Results of other tools: read from files that the real tools wrote, and held against the figures they print."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.conftest import SAMPLES
from tests.sizing.conftest import Sizing
from workbench.core.errors import ConfigError, InputError
from workbench.runs import run_folder
from workbench.sizing.estimation.metrics import METRICS
from workbench.sizing.estimation.step_points import assess_steps
from workbench.sizing.other_tools import imported_sweep, sweep_import
from workbench.sizing.other_tools.imported_sweep import (
    ImportedRequest,
    ImportedStep,
    ImportedSweep,
    build_raw_tables,
    classify_failure,
    correct_arrival_rate,
)
from workbench.sizing.tables import ESTIMATES, POINTS, QUANTILES, REQUESTS, STEPS

RECORDED = SAMPLES / "sizing"
GUIDELLM, AIPERF = RECORDED / "guidellm", RECORDED / "aiperf"
NAT = RECORDED / "nat" / "calc_runner_output.json"


def unpacked(path: Path) -> Any:
    return json.loads(gzip.decompress(path.read_bytes()))


def read(path: Path) -> tuple[ImportedSweep, pl.DataFrame, pl.DataFrame]:
    found = sweep_import.read_tool_result(path)
    return found, *build_raw_tables(found, 2)


def of_step(requests: pl.DataFrame, step: int, column: str) -> np.ndarray:
    return requests.filter(pl.col("step") == step)[column].drop_nulls().to_numpy()


def test_guidellm_gives_the_figures_that_it_prints_itself() -> None:
    found, requests, steps = read(GUIDELLM / "users.json.gz")
    report = unpacked(GUIDELLM / "users.json.gz")
    assert (found.tool, found.version, found.simulated, found.notes) == ("guidellm", "0.8.1", True, [])
    assert steps.select("users", "loop", "arrivals", "gpus").rows() == [(n, "closed", "users", 2) for n in (2, 8)]
    for step, benchmark in enumerate(report["benchmarks"]):
        printed = benchmark["metrics"]
        outcomes = Counter(requests.filter(pl.col("step") == step)["outcome"])
        totals = printed["request_totals"]
        assert (outcomes["ok"], outcomes["http_error"]) == (totals["successful"], totals["errored"])
        for column, name, factor in (
            ("runtime_s", "request_latency", 1.0),
            ("ttft_s", "time_to_first_token_ms", 1000.0),
            ("itl_s", "inter_token_latency_ms", 1000.0),
            ("input_tokens", "prompt_token_count", 1.0),
        ):
            values = of_step(requests.filter(outcome="ok"), step, column)
            assert values.mean() * factor == pytest.approx(printed[name]["successful"]["mean"], rel=1e-6), name
    refused = requests.filter(pl.col("outcome") == "http_error")
    assert set(refused["status"]) == {503}
    assert refused["runtime_s"].null_count() == refused.height == 9


def test_aiperf_gives_the_figures_that_it_prints_itself() -> None:
    found, requests, steps = read(AIPERF / "users")
    assert (found.tool, found.version, found.simulated) == ("aiperf", "0.13.0", True)
    assert steps.select("users", "timeout_s").rows() == [(2, 0.25), (8, 0.25)]
    for step, level in enumerate((2, 8)):
        printed = unpacked(AIPERF / "users" / f"concurrency_{level}" / "profile_export_aiperf.json.gz")
        runtimes = of_step(requests, step, "runtime_s") * 1000
        assert runtimes.size == printed["request_count"]["avg"]
        # Its latency ends with the last token, ours with the last byte.
        for ours, name in ((runtimes.mean(), "avg"), (np.quantile(runtimes, 0.95), "p95")):
            assert ours == pytest.approx(printed["request_latency"][name], rel=2e-3)
            assert ours > printed["request_latency"][name] * (1 - 1e-5)
        for column, name in (("ttft_s", "time_to_first_token"), ("itl_s", "inter_token_latency")):
            assert of_step(requests, step, column).mean() * 1000 == pytest.approx(printed[name]["avg"], rel=1e-6)
        assert of_step(requests, step, "output_tokens").sum() == printed["total_usage_completion_tokens"]["avg"]
    late = requests.filter(pl.col("outcome") == "timeout")
    assert (late.height, late["runtime_s"].null_count()) == (2, 2)
    # Cut at the time limit, give or take the client.
    assert all(0.2 < ended - sent < 1 for sent, ended in late.select("sent_s", "ended_s").iter_rows())
    assert [note.split(": ")[1] for note in found.notes] == ["8 requests excluded (warm-up)"] * 2


def test_gaps_and_the_first_output_are_those_of_the_file_or_unknown() -> None:
    _, requests, _ = read(AIPERF / "users")
    ok = requests.filter(outcome="ok")
    records = [
        json.loads(line)["metrics"]
        for path in sorted((AIPERF / "users").rglob("profile_export.jsonl.gz"))
        for line in gzip.decompress(path.read_bytes()).splitlines()
    ]
    gaps_ms = {max(metrics["inter_chunk_latency"]["value"]) for metrics in records if "inter_chunk_latency" in metrics}
    # The chunks of one answer came all at one moment.
    known = ok.drop_nulls("longest_gap_s")
    assert known.height == ok.height - 1
    assert {round(1000 * gap_s, 6) for gap_s in known["longest_gap_s"]} <= {round(gap_ms, 6) for gap_ms in gaps_ms}
    assert (known["longest_gap_s"] >= known["itl_s"]).all()
    assert ok["ttfo_s"].to_list() == ok["ttft_s"].to_list()
    _, requests, _ = read(GUIDELLM / "users.json.gz")
    ok = requests.filter(outcome="ok")
    assert ok["longest_gap_s"].null_count() == ok.height
    assert ok["ttfo_s"].to_list() == ok["ttft_s"].to_list()
    assert requests["finish_reason"].null_count() == requests.height


def test_a_request_of_vllm_that_failed_without_a_text_is_no_answer_of_0_s(tmp_path: Path) -> None:
    document = {"num_prompts": 2, "max_concurrency": 1, "ttfts": [0.1, 0.0], "start_times": [0.0, 1.0]}
    document |= {"input_lens": [9] * 2, "output_lens": [2, 0], "itls": [[0.05], []], "errors": ["", ""]}
    requests, _ = build_raw_tables(sweep_import.read_tool_result(written(tmp_path, document), "vllm"), 1)
    assert requests["outcome"].to_list() == ["ok", "failed"]
    assert requests["runtime_s"].to_list() == pytest.approx([0.15, None])


def test_the_longest_gap_is_read_from_times_of_events(tmp_path: Path) -> None:
    gaps_s = [[0.05, 0.75, 0.05], [0.05, 0.05, 0.05], []]
    shared = {"num_prompts": 3, "max_concurrency": 1, "ttfts": [0.1] * 3, "start_times": [0.0, 1.0, 2.0]}
    document = shared | {"input_lens": [9] * 3, "output_lens": [4, 4, 1], "itls": gaps_s}
    imported = sweep_import.read_tool_result(written(tmp_path, document), "vllm")
    assert build_raw_tables(imported, 1)[0]["longest_gap_s"].to_list() == [0.75, 0.05, None]
    response = {"output_tokens": 4, "chunk_times": [5.1, 5.2, 5.9, 6.0]}
    entry = {"start_time": 5.0, "end_time": 6.0, "info": {"response_metrics": response}}
    (tmp_path / "per_request_lifecycle_metrics.json").write_text(json.dumps([entry]))
    stage = {"load_summary": {"count": 1, "concurrency": 1}}
    (tmp_path / "stage_0_lifecycle_metrics.json").write_text(json.dumps(stage))
    (request,) = sweep_import.read_tool_result(tmp_path).steps[0].requests
    assert (request.first_token_s, request.first_output_s, request.longest_gap_s) == pytest.approx((0.1, 0.1, 0.7))
    events = ['{"delta": {"role": "assistant"}}', *['{"delta": {"content": "a"}}'] * 3]
    outputs = {"response_outputs": [{"response": event} for event in events]}
    times_ns = [int(at * 1e9) for at in (0.5, 3.0, 3.25, 4.25)]
    whole = {"timestamp": 0, "response_timestamps": [10**9], "response_outputs": outputs["response_outputs"][-1:]}
    streamed = {"timestamp": 0, "response_timestamps": times_ns, **outputs}
    experiment = {"experiment": {"mode": "concurrency", "value": 1}, "requests": [streamed, whole]}
    found = sweep_import.read_tool_result(written(tmp_path, {"experiments": [experiment]}), "genai-perf")
    assert [request.longest_gap_s for request in found.steps[0].requests] == [1.0, None]


def test_where_a_rate_was_asked_for_latency_counts_from_when_a_request_was_due() -> None:
    for path, tool in ((AIPERF / "rate", "aiperf"), (GUIDELLM / "rate.json.gz", "guidellm")):
        found, requests, steps = read(path)
        assert found.tool == tool
        assert steps.select("loop", "arrivals", "users").row(0) == ("open", "poisson", None)
        ok = requests.filter(pl.col("outcome") == "ok")
        late = (ok["sent_s"] - ok["intended_s"]).to_numpy()
        assert (late >= 0).all()
        assert late.max() > 0
        spans = (ok["ended_s"] - ok["intended_s"]).to_numpy()
        np.testing.assert_allclose(ok["runtime_s"].to_numpy(), spans, rtol=1e-9)
    assert Counter(read(AIPERF / "rate")[1]["status"])[503] == 4


def test_a_rate_that_a_tool_did_not_hold_is_not_taken_for_the_load() -> None:
    # guidellm was asked for 20 a second, and its requests were due at 30.7.
    found, requests, steps = read(GUIDELLM / "rate.json.gz")
    assert steps["rate_per_s"][0] == pytest.approx((requests.height - 1) / requests["intended_s"].max())
    assert "differs from the requested 20" in found.notes[0]
    assert read(AIPERF / "rate")[2]["rate_per_s"][0] == 25.0
    times = [ImportedRequest(number / 10, number / 10, number / 10 + 0.01) for number in range(1001)]
    notes: list[str] = []
    assert [correct_arrival_rate(asked, times, "a", notes) for asked in (10.4, 9.6)] == [10.4, 9.6]
    assert notes == []
    corrected = [correct_arrival_rate(asked, times, "a", notes) for asked in (9.0, None)]
    assert corrected == [pytest.approx(10.0)] * 2
    assert len(notes) == 1
    with pytest.raises(InputError, match="no request rate"):
        correct_arrival_rate(None, times[:1], "a", [])


def test_the_calculators_file_gives_its_own_p95() -> None:
    found, requests, steps = read(NAT)
    levels = json.loads(NAT.read_text())["calc_data"]
    assert steps["users"].to_list() == [1, 2, 4, 8, 16]
    assert steps["started_at"].null_count() == 5
    for step, level in enumerate(levels):
        metrics = levels[level]["sizing_metrics"]
        runtimes = of_step(requests, step, "runtime_s")
        assert runtimes.size == len(metrics["per_item_metrics"]) == 8 * int(level)
        assert np.quantile(runtimes, 0.95) == pytest.approx(metrics["workflow_runtime_p95"], rel=1e-9)
    assert any("has no send times" in note for note in found.notes)
    # 40 questions; 128 requests at 16 users: a prompt that was sent again is the same item.
    assert requests.filter(step=4)["item"].n_unique() == 40


def test_a_request_of_the_calculator_that_took_no_time_is_a_failure(tmp_path: Path) -> None:
    document = json.loads(NAT.read_text())
    items = document["calc_data"]["2"]["sizing_metrics"]["per_item_metrics"]
    for name in list(items)[:3]:
        items[name] = {"llm_latency": 0.0, "workflow_runtime": 0.0}
    document["calc_data"]["4"]["sizing_metrics"]["per_item_metrics"] = {}
    path = tmp_path / "calc_runner_output.json"
    path.write_text(json.dumps(document))
    found, requests, steps = read(path)
    assert steps["users"].to_list() == [1, 2, 8, 16]
    assert Counter(requests.filter(pl.col("step") == 1)["outcome"]) == {"ok": 13, "failed": 3}
    assert "2 users: 3 requests of 0 s count as failures" in found.notes
    assert "4 users: left out, it has only a p95, no single requests" in found.notes


def test_what_ran_while_the_load_went_down_does_not_count() -> None:
    # Two users, one second each; the last to be sent goes out at 9 s, when that of 8.5 s is still running.
    rows = [ImportedRequest(number / 2, number / 2, number / 2 + 1) for number in range(19)]
    requests, _ = build_raw_tables(ImportedSweep("x", "1", False, [ImportedStep("users", 2, None, None, rows)]), 1)
    assert requests.filter("tail")["sent_s"].to_list() == [8.5, 9.0]
    # One that takes very long would take most of the step with it: then all count.
    rows[2].ended_s = 100.0
    requests, _ = build_raw_tables(ImportedSweep("x", "1", False, [ImportedStep("users", 2, None, None, rows)]), 1)
    assert not requests["tail"].any()


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("TimeoutError TimeoutError()", ("timeout", None)),
        ("The request timed out", ("timeout", None)),
        ("ConnectError('All connection attempts failed')", ("refused", None)),
        ("ClientConnectorError: Cannot connect to host", ("refused", None)),
        ("RemoteProtocolError('peer closed connection without sending complete message body')", ("cut", None)),
        ("ServerDisconnectedError", ("cut", None)),
        ("JSONDecodeError: Expecting value", ("malformed", None)),
        ("HTTPStatusError(\"Client error '404 Not Found' for url 'http://127.0.0.1:8400/v1'\")", ("http_error", 404)),
        ("something else", ("failed", None)),
        ("", ("failed", None)),
    ],
)
def test_words_about_a_failure_become_its_kind(words: str, kind: tuple[str, int | None]) -> None:
    assert classify_failure(words) == kind


def report(**strategy: Any) -> dict[str, Any]:
    """A small report of guidellm with one benchmark of three requests."""
    document = unpacked(GUIDELLM / "users.json.gz")
    benchmark = document["benchmarks"][0]
    requests = {
        name: listed[:3] if name == "successful" else [] for name, listed in benchmark["requests"].items() if listed
    }
    benchmark |= {"requests": requests, "scheduler_state": {}}
    benchmark["config"]["strategy"] |= strategy
    return {"metadata": document["metadata"], "benchmarks": [benchmark]}


SMALL_REPORT = report()


def written(folder: Path, document: Any) -> Path:
    path = folder / "report.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def refused(path: Path) -> str:
    with pytest.raises(InputError) as error:
        read(path)
    return str(error.value)


def test_a_wrong_field_is_named_with_its_file(tmp_path: Path) -> None:
    whole = report()
    assert read(written(tmp_path, whole))[1].height == 3
    for place, value in (
        (("info", "timings", "request_start"), "soon"),
        (("info",), None),
        (("output_metrics", "total_tokens"), [1]),
    ):
        document = copy.deepcopy(whole)
        target = document["benchmarks"][0]["requests"]["successful"][0]
        for name in place[:-1]:
            target = target[name]
        target[place[-1]] = value
        told = refused(written(tmp_path, document))
        assert ".".join(("$.benchmarks[0].requests.successful[0]", *place)) in told
        assert "report.json" in told


def changed(document: Any, random: Random) -> Any:
    """A document with one value at any depth taken away, or replaced by what nobody expects there."""
    document = copy.deepcopy(document)
    places = []

    def walk(value: Any) -> None:
        for key in list(value) if isinstance(value, dict) else range(min(2, len(value))):
            places.append((value, key))
            if isinstance(value[key], dict | list):
                walk(value[key])

    walk(document)
    holder, key = random.choice(places)
    if random.random() < 0.3:
        del holder[key]
    else:
        holder[key] = random.choice([None, "", -1, 0, 1e308, -1e308, 2**70, True, [], {}, "x" * 50, 1.5, [None]])
    return document


@pytest.mark.parametrize("seed", range(40))
def test_whatever_is_changed_in_a_result_it_is_read_or_refused(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    records = gzip.decompress((AIPERF / "rate" / "profile_export.jsonl.gz").read_bytes()).splitlines()[:4]
    parts = [json.loads(line) for line in records]
    for part in parts:
        part["metrics"] = {name: part["metrics"][name] for name in list(part["metrics"])[:6]}
    summary = unpacked(AIPERF / "rate" / "profile_export_aiperf.json.gz")
    aiperf = changed([{"input_config": summary["input_config"]}, *parts], random)
    (tmp_path / "profile_export_aiperf.json").write_text(json.dumps(aiperf[0]))
    (tmp_path / "profile_export.jsonl").write_text("".join(json.dumps(part) + "\n" for part in aiperf[1:]))
    small = json.loads(NAT.read_text())
    small["calc_data"] = {"2": small["calc_data"]["2"]}
    (tmp_path / "calc.json").write_text(json.dumps(changed(small, random)))
    written(tmp_path, changed(SMALL_REPORT, random))
    for path, tool in ((tmp_path, "aiperf"), (tmp_path / "calc.json", "nat"), (tmp_path / "report.json", "guidellm")):
        with contextlib.suppress(InputError, ConfigError):
            requests, steps = build_raw_tables(sweep_import.read_tool_result(path, tool), 1)
            assert requests.height >= steps.height > 0
            assess_steps(requests, steps)


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        ({"type_": "knee"}, "unknown strategy"),
        ({"type_": "throughput", "streams": None, "max_concurrency": None}, "no number of streams"),
        ({"type_": "concurrent", "streams": "two"}, "$.benchmarks[0].config.strategy.streams"),
    ],
)
def test_a_strategy_that_cannot_be_a_load_is_refused(tmp_path: Path, strategy: dict[str, Any], told: str) -> None:
    assert told in refused(written(tmp_path, report(**strategy)))


def test_a_request_that_ended_before_it_began_is_refused(tmp_path: Path) -> None:
    document = report()
    for end in (5.0, 1e300):
        document["benchmarks"][0]["requests"]["successful"][0]["info"]["timings"]["request_end"] = end
        assert "inconsistent request times" in refused(written(tmp_path, document))


def test_what_is_missing_of_a_report_is_noted(tmp_path: Path) -> None:
    document = report()
    benchmark = document["benchmarks"][0]
    benchmark["requests"]["incomplete"] = benchmark["requests"]["successful"][:2]
    benchmark["scheduler_state"] = {"successful_requests": 50, "errored_requests": 1}
    found, requests, _ = read(written(tmp_path, document))
    assert requests.height == 3
    assert found.notes == [
        "benchmarks[0]: 2 requests excluded (cancelled at the end of the run)",
        "benchmarks[0]: the file has 3 of 51 requests (a sample, or without times): rates are too low",
    ]
    benchmark["requests"] = {"successful": []}
    assert "the result has no requests\n  where: result of guidellm" in refused(written(tmp_path, document))


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("", "cannot detect the load tool"),
        ('{"a": 1}', "cannot detect the load tool"),
        ('{"metadata": {"guidellm_version": "0.8.1"}, "benchmarks": [', "not in the expected format"),
        ('{"metadata": {"guidellm_version": "0.8.1"}}', "missing required field `benchmarks`"),
        ('{"aiperf_version": "0.13.0"}', "summary of aiperf without the records"),
        ('{"guidellm_version": "' + '["' * 100_000, "not in the expected format"),
    ],
)
def test_a_file_that_is_none_of_these_is_refused(tmp_path: Path, content: str, told: str) -> None:
    assert told in refused(written(tmp_path, content))


def test_a_file_larger_than_is_read_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.json.gz"
    path.write_bytes(gzip.compress(json.dumps(report()).encode() + b" " * 10_000_000))
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(imported_sweep, "MAX_DOCUMENT_BYTES", 1 << 20)
    assert "file is too large" in refused(path)
    path.write_bytes(path.read_bytes()[:2000])
    monkeypatch.setattr(imported_sweep, "MAX_DOCUMENT_BYTES", 1 << 30)
    assert "cannot read the file" in refused(path)


@pytest.fixture
def artifacts(tmp_path: Path) -> Path:
    """An artifact folder of aiperf, unpacked."""
    folder = tmp_path / "artifacts"
    folder.mkdir()
    for name in ("profile_export.jsonl", "profile_export_aiperf.json"):
        (folder / name).write_bytes(gzip.decompress((AIPERF / "rate" / f"{name}.gz").read_bytes()))
    return folder


def test_a_line_that_aiperf_did_not_finish_is_passed_over(artifacts: Path) -> None:
    path = artifacts / "profile_export.jsonl"
    whole = path.read_text()
    path.write_text(whole[: whole.rindex('"metrics"')])
    assert read(artifacts)[1].height == 119
    # In the midst of a file it is no unfinished line.
    path.write_text(whole.replace('"metrics"', "", 1))
    assert "profile_export.jsonl, line 1" in refused(artifacts)


def test_lines_and_requests_are_bounded(artifacts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported_sweep, "MAX_REQUESTS", 100)
    assert "too many requests" in refused(artifacts)
    monkeypatch.setattr(imported_sweep, "MAX_LINE_BYTES", 500)
    assert "line is too long" in refused(artifacts)


def test_counts_that_cannot_be_are_refused(artifacts: Path) -> None:
    path = artifacts / "profile_export.jsonl"
    first, rest = path.read_text().split("\n", 1)
    for name, value, said in (
        ("usage_prompt_tokens", 2**70, "invalid number of tokens"),
        ("usage_prompt_tokens", -1, "invalid number of tokens"),
        ("inter_token_latency", -5.0, "inconsistent request times"),
        ("time_to_first_token", -1e9, "inconsistent request times"),
    ):
        record = json.loads(first)
        record["metrics"][name]["value"] = value
        path.write_text(json.dumps(record) + "\n" + rest)
        assert said in refused(artifacts), name


def test_what_aiperf_lacks_is_named(artifacts: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "--export-level records" in refused(tmp_path / "empty")
    summary = artifacts / "profile_export_aiperf.json"
    document = json.loads(summary.read_text())
    for phases, told in (
        ([], "exactly one profiling phase"),
        ([{"type": "new", "kind": "profiling"}], "unknown type of phase"),
        ([{"type": "concurrency", "kind": "profiling"}], "not a concurrency"),
    ):
        document["input_config"]["phases"] = phases
        summary.write_text(json.dumps(document))
        assert told in refused(artifacts)
    summary.unlink()
    assert "the summary with the load is missing" in refused(artifacts)


def test_requests_that_aiperf_cut_at_its_end_are_left_out(artifacts: Path) -> None:
    path = artifacts / "profile_export.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records[-2:]:
        record["metadata"]["was_cancelled"] = True
        record["error"] = {"type": "RequestCancellationError", "code": 499, "message": "cancelled"}
    path.write_text("\n".join(map(json.dumps, records)) + "\n")
    found, requests, _ = read(artifacts)
    assert requests.height == 118
    assert found.notes == ["profile_export.jsonl: 2 requests excluded (cancelled at the end of the run)"]


def test_a_tool_is_told_or_found_and_one_of_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="unknown load tool"):
        sweep_import.read_tool_result(NAT, "jmeter")
    with pytest.raises(InputError, match="no such file"):
        sweep_import.read_tool_result(tmp_path / "nothing.json")
    assert [sweep_import.read_tool_result(path, "nat").tool for path in (NAT, NAT.parent)] == ["nat", "nat"]
    (tmp_path / "benchmarks.json").write_text(json.dumps(report()))
    assert sweep_import.read_tool_result(tmp_path).tool == "guidellm"


def folder_of(out: str) -> Path:
    return Path(next(line.removeprefix("sweep: ") for line in out.splitlines() if line.startswith("sweep: ")))


def test_the_command_makes_a_sweep_folder(tmp_path: Path, sizing: Sizing) -> None:
    code, out, err = sizing("import", GUIDELLM / "rate.json.gz", "--gpus", "2", "--out", tmp_path)
    assert (code, err) == (0, "")
    assert out.startswith("simulated: 1 level of guidellm, 30.67 arrivals per second (version 0.8.1)\n")
    assert "few samples: 109 requests kept, 200 needed" in out
    run = run_folder.load_run(folder_of(out))
    assert (run.area, run.status, run.verdict) == ("sizing", "succeeded", "valid")
    assert run.record["inputs"][0]["sha256"]
    assert [run.read_table(table).height for table in (REQUESTS, STEPS, POINTS)] == [120, 1, 1]
    assert set(run.read_table(QUANTILES)["metric"]) == set(METRICS) - {"gap"}
    assert run.read_table(STEPS)["simulated"].all()


def test_an_imported_sweep_is_sized_and_deployed_like_any_other(tmp_path: Path, sizing: Sizing) -> None:
    code, out, _ = sizing("import", NAT, "--gpus", "2", "--goal", "p95<=0.5", "--out", tmp_path)
    assert code == 0
    folder = folder_of(out)
    assert f"next: workbench sizing estimate {folder} --target-users N\n" in out
    assert sizing("estimate", folder, "--target-users", "100", "--json").code == 0
    row = run_folder.load_run(folder).read_table(ESTIMATES).row(0, named=True)
    # p95 is 0.46 s at 8 users on two GPUs and 0.71 s at 16: 100 users need 13 to 25 of them.
    assert 100 / 16 * 2 < row["gpus"] < 100 / 8 * 2
    code, out, _ = sizing("manifests", folder, "--gpus-per-replica", "2", "--json")
    planned = json.loads(out)["plan"]
    assert code == 0
    assert (planned["gpus"], planned["needed"]) == (row["recommended"], -(-row["recommended"] // 2))


def test_a_result_without_a_level_that_can_be_sized_ends_with_1(tmp_path: Path, sizing: Sizing) -> None:
    code, out, _ = sizing("import", AIPERF / "rate", "--gpus", "1", "--out", tmp_path, "--json")
    found = json.loads(out)
    assert (code, found["verdict"]) == (1, "invalid")
    assert found["points"][0]["verdict"] == "interrupted"
    assert found["points"][0]["n_http_error"] == 4


def test_the_command_names_what_is_wrong(tmp_path: Path, sizing: Sizing) -> None:
    for options, named in (
        ((tmp_path / "no.json", "--gpus", "1"), "no.json"),
        ((NAT, "--gpus", "1", "--tool", "jmeter"), "--tool"),
        ((NAT, "--gpus", "0"), "--gpus"),
        ((NAT,), "--gpus"),
    ):
        code, out, err = sizing("import", *options)
        assert (code, out) == (2, "")
        assert named in err
