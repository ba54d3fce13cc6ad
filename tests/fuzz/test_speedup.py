"""What the speedup area reads: plan texts and settings, factor files and models, recordings, profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import strategies as st

from tests.conftest import SAMPLES
from tests.fakes import eventlogs as made
from tests.fakes.planted import BASELINE, CANDIDATE, RICH, planted
from tests.fuzz.fuzzing import fuzz, harmless, scratch
from tests.fuzz.mutations import HOSTILE_TEXTS, damaged, json_documents, json_lines
from tests.fuzz.test_eventlogs import EVENTS
from workbench.eventlog import reader
from workbench.speedup.attribution import application_profile, application_time, time_pieces
from workbench.speedup.calibration import factor_model, what_if
from workbench.speedup.calibration.pair_calibration import calibrate_pair
from workbench.speedup.compat_rapids_tools import operator_texts, profile_folder, qualification_output, seed_factors
from workbench.speedup.compat_rapids_tools.operator_texts import UnreadableTextError
from workbench.speedup.recording import answers, query_suite, recording_plan

pytestmark = pytest.mark.slow

RECORDING = SAMPLES / "speedup" / "tpch-sf1"
FACTORS = b"CPUOperator,Score\nFilterExec,2.5\nSortExec,1.5\nAbs,4\nProjectExec,3.0\n"
PLAN_TEXTS = sorted(
    {
        str(node["simpleString"])
        for event in EVENTS
        if "sparkPlanInfo" in event
        for node in [event["sparkPlanInfo"], *event["sparkPlanInfo"]["children"]]
    }
)
READERS = (
    operator_texts.find_all_functions,
    operator_texts.find_aggregate_functions,
    operator_texts.find_window_functions,
    operator_texts.find_ranking_functions,
    operator_texts.find_top_n_functions,
    operator_texts.find_sort_functions,
    operator_texts.find_equi_join_functions,
    operator_texts.find_nested_loop_join_functions,
    operator_texts.find_condition_functions,
)
PIECES = ["(", ")", "[", "]", ",", " ", "#1", "keys=", "functions=", "parse_url(", "REF", "AND", "OR", "cast(", " AS "]
PIECES += ["orderBy=", "ASC NULLS FIRST", "Inner", "BuildRight", "ExistenceJoin(", "windowspecdefinition(", "partial_"]
grammar = st.lists(st.sampled_from(PIECES), max_size=60).map("".join)
plan_texts = st.one_of(grammar, damaged([text.encode() for text in PLAN_TEXTS]).map(lambda one: one.decode("latin-1")))


@fuzz(300, text=plan_texts, reader_of=st.sampled_from(READERS))
def test_expressions_of_any_plan_text_are_words_or_unreadable(text: str, reader_of: Any) -> None:
    try:
        found = harmless(lambda: reader_of(text))
    except UnreadableTextError:
        return
    names = found[0] if isinstance(found, tuple) else found
    assert all(isinstance(name, str) for name in names)


REPEATED = [
    "(",
    "parse_url(",
    "a(",
    "[a#1, ",
    "(keys=[",
    " AND (",
    "partial_",
    "orderBy=[",
    "a b ",
    "parse_url(x, FILE,",
    ",",
]


@pytest.mark.parametrize("unit", REPEATED)
def test_texts_of_one_piece_repeated_are_read_in_good_time(unit: str) -> None:
    """Patterns that go back over what they read take for ever on such texts."""
    for read in READERS:
        try:
            harmless(lambda read=read: read("parse_url(x, FILE" + unit * (20_000 // len(unit))))  # type: ignore[misc]
        except UnreadableTextError:
            continue


@fuzz(
    200, text=st.one_of(st.text(max_size=40), st.sampled_from(HOSTILE_TEXTS), st.from_regex(r"-?\d{1,25}[a-zA-Z]{0,3}"))
)
def test_a_size_of_spark_is_bytes_or_none(text: str) -> None:
    value = harmless(lambda: application_time.parse_size(text))
    assert value is None or isinstance(value, int)


PROPERTIES = [
    "spark.task.cpus", "spark.executor.memory", "spark.executor.memoryOverhead", "spark.master",
    "spark.sql.autoBroadcastJoinThreshold", "spark.memory.offHeap.enabled", "spark.memory.offHeap.size",
    "spark.sql.shuffle.partitions", "spark.sql.adaptive.enabled", "spark.plugins",
]  # fmt: skip
odd = st.one_of(st.sampled_from([*HOSTILE_TEXTS, "²", "٣", "true", "4g", "0"]), st.text(max_size=12))


@fuzz(80, properties=st.dictionaries(st.sampled_from(PROPERTIES), odd), version=odd)
def test_settings_of_any_properties_are_told(properties: dict[str, str], version: str) -> None:
    start = {"Event": "SparkListenerLogStart", "Spark Version": version}
    events = [
        start,
        made.environment(properties),
        made.executor_added(),
        made.application_start(),
        made.application_end(),
    ]
    with scratch() as place:
        path = place / "log"
        path.write_bytes(made.dump(*events))
        facts = harmless(lambda: reader.read_event_logs(path, jobs=1))
        assert facts is not None
        assert harmless(lambda: application_time.read_session_settings(facts)) is not None


@fuzz(40, content=json_lines(EVENTS, most=3))
def test_a_changed_log_is_profiled_and_measured_or_refused(content: bytes) -> None:
    with scratch() as place:
        path = place / "log"
        path.write_bytes(content)
        facts = harmless(lambda: reader.read_event_logs(path, jobs=1))
        if facts is None:
            return
        told = harmless(lambda: application_profile.build_profile(facts))
        assert told is None or told.verdict in ("valid", "invalid")
        harmless(lambda: application_time.read_session_settings(facts))
        harmless(lambda: time_pieces.measure_log_times(facts, "spark", "s1"))
        harmless(lambda: time_pieces.build_application_row(facts, "log", None))


@fuzz(30, content=json_lines(EVENTS, most=3))
def test_the_seed_method_reads_a_changed_log_or_refuses_it(content: bytes) -> None:
    with scratch() as place:
        path = place / "log"
        path.write_bytes(content)
        found = harmless(lambda: qualification_output.estimate_applications([path], {"FilterExec": 2.0}))
        if found:
            out = place / "out"
            harmless(lambda: qualification_output.write_qualification(found, out), writes=out)
        harmless(lambda: profile_folder.write_profile_folder([path], place / "profile"), writes=place)


@fuzz(150, content=damaged([FACTORS, b"CPUOperator,Score\n", b"\xef\xbb\xbf" + FACTORS]))
def test_a_damaged_factor_file_gives_factors_above_0_or_is_refused(content: bytes) -> None:
    with scratch() as place:
        path = place / "factors.csv"
        path.write_bytes(content)
        factors = harmless(lambda: seed_factors.read_factor_file(path))
        assert factors is None or all(0 < value < float("inf") for value in factors.values())


MODEL = json.loads(
    calibrate_pair(planted(RICH, 1), BASELINE, CANDIDATE, engines=("spark", "comet")).model.model_dump_json()
)


@fuzz(120, content=json_documents([MODEL]))
def test_a_damaged_factor_model_is_refused_or_can_be_asked(content: bytes) -> None:
    with scratch() as place:
        path = place / "factors.json"
        path.write_bytes(content)
        found = harmless(lambda: factor_model.load_factor_model(path))
        if found is not None:
            harmless(found.build_factors)
            assert found.write(place / "again.json")
            assert factor_model.load_factor_model(place / "again.json") == found


@fuzz(150, content=json_documents([json.loads((RECORDING / "recording.json").read_text())]))
def test_a_damaged_recording_is_refused_or_stays_within_its_folder(content: bytes) -> None:
    with scratch() as place:
        (place / "recording.json").write_bytes(content)
        (place / "logs").symlink_to(RECORDING / "logs")
        harmless(lambda: recording_plan.load_recording(place))


@fuzz(100, content=json_documents([json.loads((RECORDING / "answers" / "spark-s1.json").read_text())]))
def test_a_damaged_index_of_answers_names_none_elsewhere(content: bytes) -> None:
    with scratch() as place:
        (place / "spark-s1.json").write_bytes(content)
        kept = answers.AnswerStore(place)
        found = harmless(lambda: kept.read_session_index("spark-s1"))
        for digest in (found or {}).values():
            harmless(lambda digest=digest: kept.load_answer(digest))  # type: ignore[misc]


def _answers() -> list[Any]:
    files = sorted((RECORDING / "answers").glob("*.json.zst"), key=lambda path: path.stat().st_size)[:6]
    return [json.loads(zstandard.ZstdDecompressor().decompress(path.read_bytes())) for path in files]


@fuzz(
    100, content=json_documents(_answers()), packed=damaged([zstandard.compress(b'{"rows": []}')]), whole=st.booleans()
)
def test_a_damaged_answer_is_refused(content: bytes, packed: bytes, whole: bool) -> None:
    with scratch() as place:
        (place / "abc.json.zst").write_bytes(zstandard.compress(content) if whole else packed)
        harmless(lambda: answers.AnswerStore(place).load_answer("abc"))


SQL = (RECORDING / "queries.sql").read_bytes()
STREAM = b"-- start query 1 in stream 0 using template query14.tpl\nSELECT 1; SELECT 2;\n-- end query 1\n"


@fuzz(100, content=damaged([SQL[:3000], STREAM, b"-- name: a\nSELECT ';' /* ; */;"]))
def test_damaged_queries_are_statements_or_refused(content: bytes) -> None:
    with scratch() as place:
        path = place / "queries.sql"
        path.write_bytes(content)
        found = harmless(lambda: query_suite.find_suite(str(path)))
        assert found is None or all(found.queries.values())


def _profile(place: Path) -> dict[str, bytes]:
    """The tables that a small log of ours gives."""
    log = place / "log"
    log.write_bytes(b"".join(json.dumps(event).encode() + b"\n" for event in EVENTS))
    profile_folder.write_profile_folder([log], place / "made")
    return {path.name: path.read_bytes() for path in (place / "made").rglob("*.csv")}


@pytest.fixture(scope="module")
def tables_of_a_profile(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return _profile(tmp_path_factory.mktemp("profile"))


@fuzz(60, data=st.data())
def test_a_damaged_profile_folder_is_refused_or_read(
    data: st.DataObject, tables_of_a_profile: dict[str, bytes]
) -> None:
    with scratch() as place:
        for name, content in tables_of_a_profile.items():
            (place / name).write_bytes(content)
        name = data.draw(st.sampled_from(sorted(tables_of_a_profile)))
        (place / name).write_bytes(data.draw(damaged([tables_of_a_profile[name]])))
        harmless(lambda: profile_folder.read_profile_folder(place, accelerated=False))


@fuzz(80, content=json_documents([{"factors": {"FilterExec": 2.0, "SortExec": 1.5}}]))
def test_a_damaged_choice_of_factors_is_forgotten(content: bytes) -> None:
    with scratch() as place:
        path = place / "what_if.json"
        path.write_bytes(content)
        found = harmless(lambda: what_if._read_state(path))
        assert found is not None
        assert all(0 < value < float("inf") for value in found.values())


@fuzz(
    100, texts=st.lists(st.one_of(st.text(max_size=20), st.sampled_from(["FilterExec=2", "=", "a=1e999"])), max_size=3)
)
def test_factors_set_by_hand_are_numbers_or_refused(texts: list[str]) -> None:
    found = harmless(lambda: what_if.parse_factors(texts))
    assert found is None or all(isinstance(value, float) for value in found.values())
