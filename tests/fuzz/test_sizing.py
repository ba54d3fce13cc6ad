"""What the sizing area reads: calculator files, other tools' results, datasets, prompts, traces, services' streams."""

from __future__ import annotations

import gzip
import io
import json
import math
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from hypothesis import strategies as st

from tests.conftest import ROOT, SAMPLES
from tests.fakes import hostile
from tests.fuzz.fuzzing import fuzz, harmless, scratch
from tests.fuzz.mutations import HOSTILE_TEXTS, damaged, json_documents, json_lines
from workbench.sizing import config as sizing_config
from workbench.sizing.compat_nat import calc_file, eval_dataset
from workbench.sizing.deployment import service_manifests
from workbench.sizing.load import request_plan, request_trace, server_metrics, sweep_journal
from workbench.sizing.load.client_messages import CutAnswerError, FailedAnswerError, MalformedAnswerError
from workbench.sizing.load.service_targets import json_target, openai_target
from workbench.sizing.load.service_targets.http_target import LineSplitter
from workbench.sizing.other_tools import imported_sweep, sweep_import

pytestmark = pytest.mark.slow

SIZING = SAMPLES / "sizing"
CALC = json.loads((SIZING / "nat" / "calc_runner_output.json").read_text())
OLDER = {
    "gpu_estimates": {"gpu_estimate_by_wf_runtime": 3.5},
    "per_concurrency_data": {
        "1": {"sizing_metrics": next(iter(CALC["calc_data"].values()))["sizing_metrics"], "out_of_range_runs": {}}
    },
}
CRD = {
    "kind": "CustomResourceDefinition",
    "spec": {
        "group": "kueue.x-k8s.io",
        "names": {"kind": "LocalQueue"},
        "versions": [
            {
                "name": "v1beta2",
                "served": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
            }
        ],
    },
}
BAD_ANSWERS = (MalformedAnswerError, CutAnswerError, FailedAnswerError)


def _unpacked(*parts: str) -> bytes:
    return gzip.decompress(SIZING.joinpath(*parts).read_bytes())


def _few_calc() -> dict[str, Any]:
    """The sample with two of its levels: more would only make examples slow."""
    return CALC | {"calc_data": dict(list(CALC["calc_data"].items())[:3])}


def finite(document: Any) -> bool:
    """Could JSON hold it? The calculator takes NaN for a level that cannot be used."""
    try:
        json.dumps(document, allow_nan=False)
    except ValueError:
        return False
    return True


@fuzz(120, content=json_documents([_few_calc(), OLDER]))
def test_a_damaged_calculator_file_is_read_or_refused(content: bytes) -> None:
    with scratch() as place:
        path = place / "job" / "calc_runner_output.json"
        path.parent.mkdir()
        path.write_bytes(content)
        found = harmless(lambda: calc_file.read_calc_file(path))
        harmless(lambda: calc_file.read_recorded_levels(place))
        harmless(lambda: sweep_import.read_tool_result(path, "nat"))
        if found is not None and finite(found[0].model_dump()):
            calc_file.write_calc_file(place / "again.json", found[0])
            assert harmless(lambda: calc_file.read_calc_file(place / "again.json")) is not None


def _report(content: bytes) -> Any:
    """guidellm's report with two requests of each kind, and without the statistics that are not read."""
    document = json.loads(content)
    (benchmark,) = document["benchmarks"][:1]
    del benchmark["metrics"]
    benchmark["requests"] = {
        kind: found[:2] if isinstance(found, list) else found for kind, found in benchmark["requests"].items()
    }
    return document | {"benchmarks": [benchmark]}


GUIDELLM = _report(_unpacked("guidellm", "rate.json.gz"))
AIPERF = [json.loads(line) for line in _unpacked("aiperf", "rate", "profile_export.jsonl.gz").splitlines()[:8]]
SUMMARY = json.loads(_unpacked("aiperf", "rate", "profile_export_aiperf.json.gz"))


def check_import(path: Path, tool: str | None) -> None:
    found = harmless(lambda: sweep_import.read_tool_result(path, tool))
    if found is None:
        return
    frames = harmless(lambda: imported_sweep.build_raw_tables(found, 1))
    if frames is not None:
        floats = [frame[name] for frame in frames for name, dtype in frame.schema.items() if dtype.is_float()]
        assert not any(column.is_nan().any() or column.is_infinite().any() for column in floats)


@fuzz(100, content=json_documents([GUIDELLM]), packed=st.booleans(), told=st.booleans())
def test_a_damaged_report_of_guidellm_gives_tables_or_is_refused(content: bytes, packed: bool, told: bool) -> None:
    with scratch() as place:
        path = place / "benchmarks.json"
        path.write_bytes(gzip.compress(content, 1) if packed else content)
        check_import(path, "guidellm" if told else None)


@fuzz(
    100, records=json_lines(AIPERF), summary=json_documents([SUMMARY]), damage=st.sampled_from(["records", "summary"])
)
def test_damaged_artifacts_of_aiperf_give_tables_or_are_refused(records: bytes, summary: bytes, damage: str) -> None:
    with scratch() as place:
        good = b"".join(json.dumps(one).encode() + b"\n" for one in AIPERF)
        (place / "profile_export.jsonl").write_bytes(records if damage == "records" else good)
        (place / "profile_export_aiperf.json").write_bytes(
            summary if damage == "summary" else json.dumps(SUMMARY).encode()
        )
        check_import(place, "aiperf")


ENTRY = {"start_time": 5.0, "end_time": 6.0, "error": None}
ENTRY |= {"info": {"input_tokens": 9, "response_metrics": {"output_tokens": 3, "chunk_times": [5.1, 5.5, 5.9]}}}
STAGE = {"load_summary": {"count": 2, "send_duration": 1.0, "requested_rate": 2.0, "concurrency": None}}


@fuzz(
    100,
    entries=json_documents([[ENTRY, ENTRY | {"start_time": 4.0}]]),
    stage=json_documents([STAGE]),
    damage=st.sampled_from(["entries", "stage"]),
)
def test_damaged_reports_of_inference_perf_give_tables_or_are_refused(
    entries: bytes, stage: bytes, damage: str
) -> None:
    whole = json.dumps([ENTRY, ENTRY | {"start_time": 4.0}]).encode()
    with scratch() as place:
        (place / "per_request_lifecycle_metrics.json").write_bytes(entries if damage == "entries" else whole)
        (place / "stage_0_lifecycle_metrics.json").write_bytes(
            stage if damage == "stage" else json.dumps(STAGE).encode()
        )
        check_import(place, "inference-perf")


@fuzz(60, content=damaged([gzip.compress(json.dumps(GUIDELLM).encode())]))
def test_damaged_gzip_is_refused(content: bytes) -> None:
    with scratch() as place:
        (place / "a.json").write_bytes(content)
        check_import(place / "a.json", "guidellm")


ROWS = [{"id": 1, "question": "how?", "answer": "so"}, {"id": 2, "question": "why?", "answer": None}]


def _workbook() -> bytes:
    book = openpyxl.Workbook()
    for row in [list(ROWS[0]), *[list(one.values()) for one in ROWS]]:
        book.active.append(row)
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


FILES = {
    "json": json.dumps(ROWS).encode(),
    "jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in ROWS),
    "csv": b'id,question,answer\n1,how?,so\n2,"why, then?",\n',
    "xls": _workbook(),
}
YAML = b"""\
eval:
  general:
    dataset:
      _type: KIND
      file_path: data.KIND
      id_key: id
      structure: {question_key: question, answer_key: answer}
      filter:
        allowlist: {field: {id: [1, 2]}}
"""


@fuzz(150, kind=st.sampled_from(sorted(FILES)), data=st.data())
def test_a_damaged_dataset_gives_rows_or_is_refused(kind: Any, data: st.DataObject) -> None:
    content = data.draw(st.one_of(damaged([FILES[kind]]), json_documents([ROWS]) if kind == "json" else st.nothing()))
    with scratch() as place:
        (place / f"data.{kind}").write_bytes(content)
        (place / "config.yml").write_bytes(YAML.replace(b"KIND", kind.encode()))
        found = harmless(lambda: eval_dataset.read_dataset_rows(place / f"data.{kind}", kind))
        assert found is None or all(isinstance(row, dict) for row in found[0])
        whole = harmless(lambda: eval_dataset.read_dataset(place / "config.yml"))
        if whole is not None:
            harmless(lambda: whole.items_for_level(2))


BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + n, 98 + n, b",".join([b"*%c" % (97 + n)] * 9)) for n in range(7)
)
YAMLS = [
    YAML.replace(b"KIND", b"json"), BOMB, b"base: config.yml\n", b"base: ../../etc/passwd\n", b"day: 2026-02-30\n",
    b"n: 0x" + b"f" * 6_000, b"n: " + b"9" * 6_000, b"a: !!python/object/apply:os.system ['exit 1']\n", b"? [a]\n: 1\n",
    b"a: " + b"[" * 5_000, b"<<: *x\n", b"a: &a [*a]\n", b"eval: {general: {dataset: ${HOME}}}\n", b"1: 2\n~: 3\n",
]  # fmt: skip


@fuzz(120, content=damaged(YAMLS))
def test_damaged_yaml_of_the_toolkit_is_a_mapping_or_refused(content: bytes) -> None:
    with scratch() as place:
        path = place / "config.yml"
        path.write_bytes(content)
        found = harmless(lambda: eval_dataset.load_nat_yaml(path))
        assert found is None or isinstance(found, dict)
        harmless(lambda: eval_dataset.read_dataset(path))


@fuzz(150, content=damaged([b"0.0\n1.5 # first\n2.5\n", b"0\n1e3\n"]))
def test_a_damaged_trace_gives_rising_times_or_is_refused(content: bytes) -> None:
    with scratch() as place:
        path = place / "trace.txt"
        path.write_bytes(content)
        times = harmless(lambda: request_trace.read_request_trace(path).times_s)
        assert times is None or (times == sorted(times) and all(math.isfinite(time) for time in times))


@fuzz(150, kind=st.sampled_from(["json", "jsonl", "csv", "txt"]), data=st.data())
def test_damaged_prompts_are_texts_or_refused(kind: str, data: st.DataObject) -> None:
    samples = {"txt": b"how?\nwhy?\n"} | FILES
    with scratch() as place:
        path = place / f"prompts.{kind}"
        path.write_bytes(data.draw(damaged([samples[kind]])))
        found = harmless(lambda: request_plan.read_prompts(path))
        assert found is None or all(isinstance(text, str) and text for text in found)


NAT = (SIZING / "nat" / "generate_full.txt").read_bytes()
CHAT = b"".join(
    [
        *(hostile.chat({"choices": [{"index": 0, "delta": {"content": "yes "}}]}) for _ in range(3)),
        hostile.chat({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}),
        hostile.chat({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 3}}),
        b"data: [DONE]\n\n",
    ]
)
cuts = st.lists(st.integers(1, 400), max_size=8)


def fed(content: bytes, sizes: list[int]) -> Any:
    """The lines of a stream that comes in pieces of these sizes, then the rest."""
    lines, start = LineSplitter(100_000), 0
    for size in [*sizes, len(content)]:
        yield from lines.add_chunk(content[start : start + size])
        start += size
    yield lines.take_rest()


@fuzz(150, content=damaged([NAT, CHAT]), sizes=cuts)
def test_a_torn_stream_gives_the_same_lines_however_it_is_torn(content: bytes, sizes: list[int]) -> None:
    assert list(fed(content, sizes)) == list(fed(content, []))


@fuzz(200, content=damaged([CHAT, NAT]), sizes=cuts)
def test_damaged_chat_streams_end_in_a_reply_or_an_error_of_the_answer(content: bytes, sizes: list[int]) -> None:
    stream = openai_target.ChatStream()
    try:
        for line in fed(content, sizes):
            stream.add_line(line, 1.0)
        reply = stream.build_reply(2.0, 200, 0.0)
    except BAD_ANSWERS:
        return
    assert reply.status == 200


@fuzz(200, content=damaged([NAT, hostile.event("LLM_END", 1.5, "c", tokens=(1, 2)) + b'data: {"value": 1}\n\n']))
def test_damaged_events_of_the_toolkit_are_taken_or_an_error_of_the_answer(content: bytes) -> None:
    times, tokens = json_target.ServerTimes(), list[float]()
    try:
        for line in fed(content, []):
            json_target._read_stream_line(line, times, tokens, [])
    except BAD_ANSWERS:
        pass
    assert times.runtime_s is None or times.runtime_s > 0


@fuzz(
    120,
    answer=json_documents([{"choices": [{"text": "a"}], "usage": {"n": 3}}]),
    path=st.text("choices.0123456789²", max_size=16),
)
def test_any_path_into_any_answer_gives_a_value_or_nothing(answer: bytes, path: str) -> None:
    try:
        document = json.loads(answer)
    except (ValueError, RecursionError):
        return
    harmless(lambda: json_target.find_json_value(document, path))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from workbench.sizing.config import SweepConfig

    config = SweepConfig(protocol="openai", url="http://127.0.0.1:9/v1", model="m", users=[1, 2])
    made = sweep_journal.create_sweep_journal(
        config, out=tmp_path_factory.mktemp("sweep"), keep=True, prompts={}, command=None
    )
    assert made.folder is not None
    return made.folder


@fuzz(100, data=st.data())
def test_a_damaged_journal_of_a_sweep_is_refused_or_goes_on(data: st.DataObject, swept: Path) -> None:
    document = json.loads((swept / sweep_journal.JOURNAL_NAME).read_text())
    with scratch() as place:
        (place / "run.json").write_bytes((swept / "run.json").read_bytes())
        (place / sweep_journal.JOURNAL_NAME).write_bytes(data.draw(json_documents([document])))
        harmless(lambda: sweep_journal.load_sweep_journal(place))


@fuzz(
    150,
    texts=st.lists(
        st.one_of(st.text(max_size=15), st.sampled_from([f"a={text}" for text in HOSTILE_TEXTS])), max_size=3
    ),
)
def test_settings_as_texts_are_values_or_refused(texts: list[str]) -> None:
    harmless(lambda: sizing_config.parse_assignments(texts, where="service"))
    harmless(lambda: sizing_config.parse_assignments(["a=" + "[" * 100_000], where="service"))


METRICS_PAGE = (ROOT / "tests" / "sizing" / "load" / "recorded" / "vllm.txt").read_bytes()
AZURE_TRACE = (
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50,396,109\n"
)
TRACE_ROW = {"timestamp": 27482, "input_length": 955, "output_length": 52, "hash_ids": [46, 47]}


@fuzz(150, page=damaged([METRICS_PAGE]))
def test_a_damaged_metrics_page_gives_finite_numbers_or_is_refused(page: bytes) -> None:
    found = harmless(lambda: server_metrics.parse_server_metrics(page.decode(errors="replace")))
    values = [] if found is None else [value for value in found.values() if value is not None]
    assert all(math.isfinite(value) and value >= 0 for value in values)


@fuzz(120, content=st.one_of(damaged([AZURE_TRACE]), json_lines([TRACE_ROW, TRACE_ROW | {"timestamp": 30000}])))
def test_a_damaged_trace_is_read_or_refused(content: bytes) -> None:
    with scratch() as place:
        (place / "trace").write_bytes(content)
        found = harmless(lambda: request_trace.read_request_trace(place / "trace"))
        if found is not None:
            assert found.rate_per_s > 0
            assert len(found.input_tokens) in (0, len(found.times_s))


@fuzz(80, content=json_documents([{"kind": "List", "items": [CRD]}, CRD]))
def test_a_damaged_crd_is_used_or_refused(content: bytes) -> None:
    queue = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": {"name": "q"}, "spec": {}}
    with scratch() as place:
        (place / "crd.yaml").write_bytes(content)
        schemas = harmless(lambda: service_manifests.read_crd_schemas([place / "crd.yaml"]))
        if schemas is not None:
            harmless(lambda: service_manifests.check_manifests([queue], None, schemas))
