"""What the indicators area reads: what scripts print, sessions, specifications, stacks, index pages, other tools."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import strategies as st

from tests.conftest import SAMPLES
from tests.fuzz.fuzzing import fuzz, harmless, scratch
from tests.fuzz.mutations import HOSTILE_TEXTS, damaged, json_documents
from tests.fuzz.test_sizing import YAMLS
from workbench.indicators.analysis import observations
from workbench.indicators.compat_thoth import amun_import, amun_specification, thoth_indicators
from workbench.indicators.compat_thoth.thoth_indicators import PiMatmul
from workbench.indicators.contract import documents
from workbench.indicators.kubernetes import log_records
from workbench.indicators.recommendation import metric_mix, recommendation_request, vulnerabilities
from workbench.indicators.stacks import package_index, stack_request, stack_sets, uv_tool
from workbench.indicators.store import archive, pyperf_suites
from workbench.indicators.store.benchmark_import import import_results

pytestmark = pytest.mark.slow

SESSION = SAMPLES / "indicators" / "numpy"
INSPECTION = sorted((SESSION / "inspections").iterdir())[0]
RESULT = json.loads((INSPECTION / "results" / "0" / "result").read_text())
SPECIFICATION = json.loads((INSPECTION / "build" / "specification").read_text())
PRINTED = RESULT["stdout"] if isinstance(RESULT.get("stdout"), dict) else json.loads(RESULT["stdout"])
ORDER = {
    "name": "a", "python": {"requirements": {"packages": {"numpy": "==2.0.0"}}, "requirements_locked": {"default": {}}},
    "script": "print(1)", "environment": [{"name": "A", "value": "1"}], "files": [{"name": "a", "content": "b"}],
    "run": {"requests": {"cpu": "1", "memory": "256Mi"}}, "build": {"requests": {"memory": "1Gi"}}, "batch_size": 2,
}  # fmt: skip
OSV = {
    "id": "PYSEC-1", "summary": "bad", "references": [{"url": "https://example.org/a"}],
    "affected": [
        {"package": {"name": "numpy", "ecosystem": "PyPI"}, "versions": ["1.0"],
         "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.0"}]}]}
    ],
}  # fmt: skip
AUDIT = {"dependencies": [{"name": "numpy", "version": "1.0", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2.0"]}]}]}


@fuzz(250, content=json_documents([PRINTED, {"name": "A", "@result": {"rate": 1}}]))
def test_what_a_script_prints_is_a_document_or_has_a_status(content: bytes) -> None:
    try:
        found = harmless(lambda: documents.parse_document(content))
        assert found is not None
        known = harmless(lambda: thoth_indicators.find_model(found))
        documents.validate_document(found, known[0] if known else PiMatmul)
    except documents.DocumentError:
        return


@fuzz(150, content=json_documents([RESULT]))
def test_a_damaged_result_is_refused_or_has_values(content: bytes) -> None:
    with scratch() as place:
        (place / "result").write_bytes(content)
        harmless(lambda: archive.read_result(place / "result"))


@pytest.fixture(scope="module")
def small_session(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample with two runs of each inspection."""
    place = tmp_path_factory.mktemp("session") / "numpy"
    ignored = shutil.ignore_patterns(*map(str, range(1, 100)))
    return Path(shutil.copytree(SESSION, place, ignore=ignored))


@fuzz(20, data=st.data())
def test_a_damaged_session_is_observed_or_refused(data: st.DataObject, small_session: Path) -> None:
    document = json.loads((small_session / archive.SESSION_FILE).read_text())
    result = small_session / "inspections" / INSPECTION.name / "results" / "0" / "result"
    with scratch() as place:
        folder = place / "session"
        shutil.copytree(small_session, folder, copy_function=os.link)
        damage = data.draw(st.sampled_from(["session", "result"]))
        path = folder / archive.SESSION_FILE if damage == "session" else folder / result.relative_to(small_session)
        path.unlink()
        path.write_bytes(data.draw(json_documents([document if damage == "session" else RESULT], most=2)))
        session = harmless(lambda: archive.read_session(folder))
        harmless(lambda: observations.load_observations(folder))
        if session is not None:
            harmless(lambda: pyperf_suites.export_session(folder, place / "pyperf"), writes=place)


@fuzz(
    120,
    content=st.one_of(json_documents([ORDER, SPECIFICATION]), damaged(YAMLS)),
    suffix=st.sampled_from([".json", ".yaml"]),
)
def test_a_damaged_specification_is_refused_or_specified(content: bytes, suffix: str) -> None:
    with scratch() as place:
        path = place / f"order{suffix}"
        path.write_bytes(content)
        found = harmless(lambda: amun_specification.read_specifications(path), writes=place)
        for one in found or []:
            harmless(one.build_stack)


@fuzz(
    40,
    content=json_documents([RESULT, PRINTED]),
    name=st.sampled_from(["a.json", "a.stdout", "0/result", "results/0/result"]),
)
def test_damaged_documents_of_amun_become_sessions_or_problems(content: bytes, name: str) -> None:
    with scratch() as place:
        path = place / "given" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        out = place / "out"
        report = harmless(lambda: import_results("amun", [place / "given"], out), writes=out)
        problems = amun_import.ReadProblems()
        harmless(lambda: list(amun_import.read_raw_runs(place / "given", problems)))
        assert report is None or isinstance(report.problems, list)


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory, small_session: Path) -> Any:
    out = tmp_path_factory.mktemp("pyperf")
    pyperf_suites.export_session(small_session, out)
    return json.loads(sorted(out.glob("*.json"))[0].read_text())


@fuzz(60, data=st.data())
def test_a_damaged_suite_of_pyperf_becomes_a_session_or_is_refused(data: st.DataObject, suite: Any) -> None:
    with scratch() as place:
        (place / "suite.json").write_bytes(data.draw(json_documents([suite], most=2)))
        out = place / "out"
        harmless(lambda: import_results("pyperf", [place / "suite.json"], out), writes=out)


ASV = {
    "commit_hash": "c0ffee",
    "env_name": "virtualenv-py3.12",
    "date": 1_793_534_400_000,
    "params": {"machine": "m", "cpu": "Model X", "num_cpu": "2"},
    "python": "3.12",
    "requirements": {"numpy": "2.2"},
    "env_vars": {"MODE": "on"},
    "result_columns": ["result", "params", "version", "started_at", "duration", "samples"],
    "results": {"a.time_x": [[0.5, None], [["1", "2"]], "1", 1_793_534_400_000, 1.5, [[0.25, 0.75], None]]},
    "version": 2,
}


@fuzz(60, data=st.data())
def test_damaged_results_of_asv_become_sessions_or_are_refused(data: st.DataObject) -> None:
    with scratch() as place:
        path = place / "results" / "m" / "a.json"
        path.parent.mkdir(parents=True)
        path.write_bytes(data.draw(json_documents([ASV], most=2)))
        (place / "results" / "benchmarks.json").write_bytes(b'{"a.time_x": {"unit": "seconds", "version": "1"}}')
        out = place / "out"
        harmless(lambda: import_results("asv", [place / "results"], out), writes=out)


RECORDED_TOOLS = {
    "hyperfine": "hyperfine.json",
    "google-benchmark": "google.json",
    "jmh": "jmh.json",
    "criterion": "criterion.jsonl",
    "codspeed": "codspeed.json",
}


@fuzz(60, data=st.data())
def test_damaged_results_of_benchmark_tools_become_sessions_or_are_refused(data: st.DataObject) -> None:
    form = data.draw(st.sampled_from(sorted(RECORDED_TOOLS)))
    text = (Path(__file__).parents[1] / "indicators" / "store" / "recorded" / RECORDED_TOOLS[form]).read_text()
    document = json.loads(text.splitlines()[0] if form == "criterion" else text)
    with scratch() as place:
        path, out = place / "result.json", place / "out"
        path.write_bytes(data.draw(json_documents([document], most=2)))
        harmless(lambda: import_results(form, [path], out), writes=out)


STACKS = {
    "format_version": 1,
    "stacks": [],
}


@fuzz(150, content=json_documents([json.loads((SESSION / "session.json").read_text())["arms"][0], STACKS]))
def test_a_damaged_file_of_stacks_is_refused_or_holds_its_keys(content: bytes) -> None:
    with scratch() as place:
        (place / "stacks.json").write_bytes(content)
        harmless(lambda: stack_sets.read_stack_set(place))


PAGE = b"""<!DOCTYPE html><a href="../../f/numpy-2.0.0-cp311-cp311-manylinux_2_17_x86_64.whl#sha256=00" \
data-requires-python="&gt;=3.9" data-yanked="bad">numpy</a><a href="javascript:x/a-1-py3-none-any.whl">a</a>"""
JSON_PAGE = {
    "files": [
        {"filename": "a-1.0-py3-none-any.whl", "url": "a-1.0-py3-none-any.whl", "hashes": {"sha256": "0" * 64},
         "upload-time": "2026-01-01T00:00:00Z", "size": 10, "yanked": False, "requires-python": ">=3.9"}
    ]
}  # fmt: skip


@fuzz(
    200,
    content=st.one_of(json_documents([JSON_PAGE]), damaged([PAGE])),
    kind=st.sampled_from(["text/html", "json", ""]),
)
def test_a_page_of_an_index_lists_wheels_or_is_no_page(content: bytes, kind: str) -> None:
    try:
        found = harmless(
            lambda: package_index.parse_page(content.decode("utf-8", "replace"), kind, "https://example.org/simple/a/")
        )
    except ValueError:
        return  # what callers await and tell with the address
    assert all(one.url.startswith(("http", "file")) for one in found or [])


@fuzz(
    150,
    content=damaged(
        [b"numpy>=1.24 # a\npandas ; python_version>'3.8'\n", b"-r other.txt\n", b"a @ file:///etc/passwd\n"]
    ),
)
def test_damaged_requirements_are_names_and_versions_or_refused(content: bytes) -> None:
    with scratch() as place:
        (place / "requirements.txt").write_bytes(content)
        for line in harmless(lambda: stack_request.read_requirements(place / "requirements.txt")) or ():
            harmless(lambda line=line: stack_request.parse_requirement(line, "here"))  # type: ignore[misc]
            harmless(lambda line=line: recommendation_request.parse_requirement(line))  # type: ignore[misc]


words = st.one_of(
    st.text(max_size=30), st.sampled_from(HOSTILE_TEXTS), st.from_regex(r"[a-z]{1,3}=[-0-9.einfa]{1,8}(,[a-z]=1)?")
)


@fuzz(200, text=words)
def test_texts_of_options_are_values_or_refused(text: str) -> None:
    harmless(lambda: metric_mix.Mix.from_text(text, ["sort", "sin", "a"]))
    harmless(lambda: stack_request.parse_moment(text, "here"))
    harmless(lambda: stack_request.parse_day(text, "here"))
    harmless(lambda: stack_request.parse_size(text))
    if "/" not in text and "\x00" not in text:
        harmless(lambda: stack_request.read_context(text if text.startswith("{") else "{" + text))


@fuzz(150, content=st.one_of(json_documents([OSV, [OSV], AUDIT]), damaged([json.dumps(OSV).encode() + b"\n"])))
def test_damaged_vulnerabilities_are_refused_or_known(content: bytes) -> None:
    with scratch() as place:
        (place / "osv.json").write_bytes(content)
        known = harmless(lambda: vulnerabilities.read_vulnerabilities(place / "osv.json"))
        if known is not None:
            harmless(lambda: list(known.find_affecting({"numpy": "1.0"})))
            harmless(lambda: known.list_without_audit({"numpy": "1.0"}))


LOCK = {"_meta": {"requires": {"python_version": "3.11"}}, "default": {"numpy": {"version": "==2.0.0", "hashes": []}}}


@fuzz(150, content=json_documents([LOCK]))
def test_a_damaged_pipfile_lock_is_packages_or_refused(content: bytes) -> None:
    try:
        locked = json.loads(content)
    except (ValueError, RecursionError):
        return
    harmless(lambda: amun_specification.read_lock_packages(locked, "Pipfile.lock"))


LINES = [
    b"@workbench 0 pod 1 abc: {}\n",
    b"noise\n",
    b"@workbench done\n",
    b"\x00" * 50,
    b"@workbench " + b"a" * 300 + b"\n",
]


@fuzz(100, blocks=st.lists(damaged(LINES), max_size=4))
def test_logs_of_pods_give_only_documents_that_are_signed(blocks: list[bytes]) -> None:
    found = harmless(lambda: log_records.read_records([blocks], "00" * 32))
    assert found is not None
    assert not found.documents


@fuzz(
    100,
    content=json_documents([{"index": [{"url": "https://example.org", "default": True}], "pip": {"index-url": "a"}}]),
)
def test_uvs_own_settings_in_any_shape_are_read_or_refused(content: bytes) -> None:
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return
    if isinstance(document, dict):
        # Any file that is there: what its text says is given.
        with mock.patch.object(uv_tool.tomllib, "loads", return_value=document):
            harmless(lambda: uv_tool.load_sources({"UV_CONFIG_FILE": __file__}))


def test_the_samples_of_these_tests_are_good_ones() -> None:
    assert documents.parse_document(json.dumps(PRINTED).encode())["name"]
    assert archive.read_result(INSPECTION / "results" / "0" / "result")
