"""What the fuzz tests found and was mended, each as the smallest input that showed it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import polars as pl
import pytest
import zstandard

from tests.fakes import codecs
from tests.fakes import eventlogs as made
from workbench.core import tables
from workbench.core.errors import InputError, WorkbenchError
from workbench.eventlog import reader
from workbench.eventlog.sources import LogCutter, list_logs
from workbench.execution import discovery, parameters
from workbench.indicators.compat_thoth import amun_import, amun_specification
from workbench.indicators.stacks import package_index
from workbench.scaletest.compat_runai import runai_files as upstream
from workbench.scaletest.observation import object_ledger, run_records
from workbench.sizing import config
from workbench.sizing.compat_nat import eval_dataset
from workbench.speedup.calibration import factor_model
from workbench.speedup.recording import answers


@pytest.mark.parametrize("chunk_bytes", [60, 32 << 20])
def test_a_job_that_the_log_holds_twice_is_one_row_wherever_the_log_is_cut(tmp_path: Path, chunk_bytes: int) -> None:
    job = (made.job_start(0, [0]), made.job_end())
    (tmp_path / "log").write_bytes(made.small(*job, *job))
    facts = reader.read_event_logs(tmp_path / "log", chunk_bytes=chunk_bytes)
    assert facts.jobs["job_id"].to_list() == [0]


def test_a_task_that_ended_outside_of_its_stage_is_counted_as_late(tmp_path: Path) -> None:
    stage = (made.stage_submitted(0, tasks=1), made.task_start(), made.task_end(), made.stage_completed(0))
    content = made.small(made.task_end(), *stage)
    path = tmp_path / "log"
    path.write_bytes(content)
    cut = content.index(b"SparkListenerStageSubmitted")
    assert reader.read_event_logs(path, chunk_bytes=cut - 20).logs["n_late_task_ends"].to_list() == [1]


@pytest.mark.parametrize("chunk_bytes", [60, 32 << 20])
def test_a_stage_that_the_log_submits_again_after_its_end_is_one_row(tmp_path: Path, chunk_bytes: int) -> None:
    stage = (made.stage_submitted(0, tasks=1), made.task_start(), made.task_end(), made.stage_completed(0))
    (tmp_path / "log").write_bytes(made.small(*stage, made.stage_submitted(0, tasks=1)))
    facts = reader.read_event_logs(tmp_path / "log", chunk_bytes=chunk_bytes)
    assert facts.stages["stage_id"].to_list() == [0]


@pytest.mark.parametrize("chunk_bytes", [100, 777, 5_000])
def test_a_packed_log_is_cut_where_the_plain_one_is_however_large_its_blocks_are(
    tmp_path: Path, chunk_bytes: int
) -> None:
    content = made.small(*[made.task_start(task_id=number) for number in range(200)])
    (tmp_path / "plain").write_bytes(content)
    (tmp_path / "packed").write_bytes(codecs.gzip(content))

    def cuts(name: str) -> set[int]:
        (source,) = list_logs(str(tmp_path / name))
        return {len(content[: chunk.stop]) for chunk in LogCutter(0, source, chunk_bytes).iter_chunks()}

    line_ends = {at + 1 for at, byte in enumerate(content) if byte == 10}
    plain = {min(end for end in line_ends if end >= stop) for stop in cuts("plain") if stop <= max(line_ends)}
    assert cuts("packed") == plain


NESTED = "[" * 100_000 + "]" * 100_000


def nested(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(NESTED)
    return folder


def test_json_nested_without_end_is_refused_by_every_reader_that_took_it_for_a_mistake_of_ours(tmp_path: Path) -> None:
    place = nested(tmp_path, "a.json")
    nested(tmp_path, "spark-s1.json")
    nested(tmp_path, "submitted.json")
    (tmp_path / "abc.json.zst").write_bytes(zstandard.compress(NESTED.encode()))
    (tmp_path / "a.ipynb").write_text(NESTED)
    calls: list[Callable[[], object]] = [
        lambda: factor_model.load_factor_model(place / "a.json"),
        lambda: answers.AnswerStore(place).read_session_index("spark-s1"),
        lambda: answers.AnswerStore(place).load_answer("abc"),
        lambda: upstream.read_files(place),
        lambda: discovery.read_notebook(place / "a.ipynb"),
        lambda: list(run_records.read_lines(place / "a.json", run_records.JournalLine)),
    ]
    (place / "a.json").write_text(NESTED + "\n")
    for call in calls:
        with pytest.raises(InputError):
            call()
    assert config.parse_assignments([f"a={NESTED}"], where="service") == {"a": NESTED}
    with pytest.raises(msgspec.MsgspecError):
        object_ledger.ObjectDecoder(object_ledger.Pod).decode_line(NESTED.encode())


@pytest.mark.parametrize("value", ["2026-02-30", "9" * 6_000, "[" * 200, "&a [*a]"])
def test_yaml_whose_values_are_none_is_no_mistake_of_ours(tmp_path: Path, value: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(f"top: {value}\n")
    with pytest.raises(WorkbenchError) as refused:
        parameters.read_values_file(path)
    assert refused.value.exit_code == 2
    if "*" not in value:
        with pytest.raises(InputError):
            eval_dataset.load_nat_yaml(path)


def test_a_line_that_is_no_utf_8_is_refused_with_its_number(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_bytes(b'{"type":"\x80"}\n')
    with pytest.raises(InputError, match="line 1"):
        list(run_records.read_lines(tmp_path / "journal.jsonl", run_records.JournalLine))


def test_a_panic_of_polars_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def panics(*_: object, **__: object) -> None:
        raise pl.exceptions.PanicException("out of range")

    monkeypatch.setattr(pl, "read_parquet", panics)
    with pytest.raises(InputError, match="Parquet"):
        tables.read_parquet(tmp_path / "a.parquet")


def test_a_page_of_an_index_gives_no_link_that_cannot_be_fetched() -> None:
    page = '<a href="javascript:x/a-1-py3-none-any.whl">a</a><a href="b-1-py3-none-any.whl">b</a>'
    assert [one.url for one in package_index.parse_page(page, "text/html", "https://example.org/b/")] == [
        "https://example.org/b/b-1-py3-none-any.whl"
    ]


def test_half_of_a_pair_of_code_units_in_a_document_of_amun_is_told_as_a_problem(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"name": "PiMatmul", "framework": "\\ud800", "@result": {"rate": 1}}')
    problems = amun_import.ReadProblems()
    assert list(amun_import.read_raw_runs(tmp_path, problems)) == []
    assert problems.found


@pytest.mark.parametrize("variable", [{"value": "1"}, {"name": None, "value": "1"}, {"name": True, "value": "1"}, 5])
def test_a_variable_without_a_name_is_refused(tmp_path: Path, variable: object) -> None:
    path = tmp_path / "order.json"
    path.write_text(json.dumps({"name": "a", "script": "print(1)", "environment": [variable]}))
    with pytest.raises(InputError):
        amun_specification.read_specifications(path)
