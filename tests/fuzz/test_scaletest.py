"""What the scale test reads: scenarios, templates, journals and observations, kubeconfigs, what an API server sends."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest
import yaml
from hypothesis import strategies as st

from tests.conftest import SAMPLES
from tests.fakes.scale_runs import Plan, record_of, tables
from tests.fuzz.fuzzing import fuzz, harmless, scratch
from tests.fuzz.mutations import HOSTILE_TEXTS, damaged, json_documents, json_lines, restructured
from tests.fuzz.test_sizing import YAMLS
from tests.scaletest.compat_runai.test_runai_files import sampled, submitted
from workbench.kubernetes.client import load_target
from workbench.scaletest.analysis import raw_tables, variants
from workbench.scaletest.compat_runai import runai_files as upstream
from workbench.scaletest.observation import audit_log, object_ledger, run_records
from workbench.scaletest.observation.run_records import Acked, Beat, Begun, Failed, Gap, Intent, Load, Skew, Stopped
from workbench.scaletest.scenario import (
    manifest_rules,
    safe_yaml,
    scenario_file,
    trace_scenario,
    workload_entries,
    workload_plan,
)
from workbench.scaletest.submission import submission_journal
from workbench.scaletest.tables import SCHEDULE

pytestmark = pytest.mark.slow

SCENARIOS = sorted((SAMPLES / "scaletest" / "scenarios").glob("*.yaml"))
TEXTS = [path.read_bytes() for path in SCENARIOS]
DOCUMENTS = [yaml.safe_load(text) for text in TEXTS]
TRACES = [
    b"submit_s,run_s,gpus_per_pod,pods\n0,600,1,1\n60,30,8,2\n90,1200,0.5,1\n",
    b"name,num_gpu,gpu_milli,creation_time,deletion_time,scheduled_time\na,1,500,0,900,10\nb,8,1000,50,4000,60\n",
    json.dumps(
        [
            {
                "submitted_time": "2017-10-07 01:11:39",
                "attempts": [
                    {
                        "start_time": "2017-10-07 01:12:09",
                        "end_time": "2017-10-07 02:13:23",
                        "detail": [{"ip": "m47", "gpus": ["gpu0", "gpu1"]}],
                    }
                ],
            }
        ]
    ).encode(),
]
NS = 1_000_000_000
ORIGIN = 1_795_315_530 * NS
RUN = "st-00000001"


@fuzz(200, content=damaged([*TEXTS, *YAMLS]))
def test_a_damaged_scenario_is_refused_or_the_same_when_written_again(content: bytes) -> None:
    with scratch() as place:
        (place / "scenario.yaml").write_bytes(content)
        found = harmless(lambda: scenario_file.load_scenario(place / "scenario.yaml"))
        if found is not None:
            assert scenario_file.parse_scenario(scenario_file.format_canonical(found)) == found


@fuzz(150, document=restructured(DOCUMENTS))
def test_a_changed_scenario_is_refused_or_planned_within_its_limits(document: Any) -> None:
    try:
        text = yaml.safe_dump(document)
    except (yaml.YAMLError, UnicodeError, RecursionError):
        return
    found = harmless(lambda: scenario_file.parse_scenario(text.encode("utf-8", "replace"), folder=SCENARIOS[0].parent))
    if found is None:
        return
    made = harmless(lambda: workload_plan.draw_plan(found, RUN))
    if made is not None:
        assert made.schedule.height <= found.limits.objects


@fuzz(150, content=damaged(TRACES))
def test_a_damaged_trace_is_refused_or_becomes_a_scenario_that_can_be_planned(content: bytes) -> None:
    with scratch() as place:
        (place / "trace").write_bytes(content)
        found = harmless(lambda: trace_scenario.read_job_trace(place / "trace"))
        if found is None or not found.jobs.height:
            return
        assert found.jobs.filter(~pl.col("run_s").is_finite() | (pl.col("pods") < 1)).is_empty()
        made = harmless(lambda: trace_scenario.write_trace_scenario(found, place / "replay"), writes=place)
        if made is not None:
            assert made.n_jobs == min(500, found.jobs.height)


@fuzz(60, content=damaged([b"apiVersion: v1\nkind: Pod\nspec: {containers: [{image: a}]}\n", *YAMLS]))
def test_a_damaged_template_is_refused_or_checked(content: bytes) -> None:
    found = harmless(lambda: safe_yaml.parse_yaml(bytes(content), "template"))
    if found is not None and isinstance(found.value, dict):
        try:
            harmless(lambda: manifest_rules.check_manifest(found.value, None, None))
        except ValueError:
            return  # becomes a problem of the field when a scenario is checked
        harmless(lambda: manifest_rules.list_pod_templates(found.value))


@fuzz(
    200,
    value=st.one_of(
        st.text(max_size=12),
        st.sampled_from(HOSTILE_TEXTS),
        st.integers(),
        st.floats(),
        st.from_regex(r"[0-9]{1,25}[a-zA-Z]{0,3}"),
    ),
)
def test_a_quantity_is_a_number_or_refused(value: object) -> None:
    try:
        found = harmless(lambda: workload_entries.parse_quantity(value))
    except ValueError:
        return  # becomes a problem of the field when a scenario is checked
    assert found is not None
    assert math.isfinite(found)


JOURNAL = [
    Begun(RUN, ORIGIN, ORIGIN), Intent(0, ORIGIN + 1), Acked(0, ORIGIN, ORIGIN + 4, 201, "u", "2026-11-22T02:45:30Z"),
    Intent(1, ORIGIN), Failed(1, ORIGIN, ORIGIN, "no", 403), Stopped(ORIGIN + 9, "interrupted"),
]  # fmt: skip
HEALTH = [Gap("pod", ORIGIN, ORIGIN + 1, "expired"), Beat(ORIGIN, 1), Skew(ORIGIN, 1, 1, 1), Load(ORIGIN, 0.1, 1)]


def _built(record: msgspec.Struct) -> Any:
    return json.loads(run_records.encode_line(record))


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("planned")
    SCHEDULE.write(tables(Plan([0.0, 1.0, 2.0, 3.0]))["schedule"], folder / "tables")
    run_records.write_conditions(folder, record_of(Plan([0.0])))
    return folder


@fuzz(
    100,
    content=json_lines([_built(one) for one in JOURNAL]),
    name=st.sampled_from([run_records.JOURNAL, run_records.OBSERVED, run_records.HEALTH]),
)
def test_damaged_lines_of_a_run_are_reduced_up_to_the_cut_or_refused(content: bytes, name: str, planned: Path) -> None:
    with scratch() as place:
        (place / "tables").mkdir()
        for path in (planned / "tables").iterdir():
            (place / "tables" / path.name).symlink_to(path)
        (place / run_records.CONDITIONS_FILE).symlink_to(planned / run_records.CONDITIONS_FILE)
        good = b"".join(map(run_records.encode_line, JOURNAL))
        (place / run_records.JOURNAL).write_bytes(good)
        (place / name).write_bytes(content)
        harmless(lambda: submission_journal.read_journal(place))
        harmless(lambda: raw_tables.write_raw_tables(place), writes=place)
        for kind in (run_records.JournalLine, run_records.ObservedLine, run_records.HealthLine):
            harmless(lambda kind=kind: list(run_records.read_lines(place / name, kind)))  # type: ignore[misc]


@fuzz(120, content=json_documents([json.loads(record_of(Plan([0.0])).model_dump_json())]))
def test_a_damaged_record_of_a_test_is_refused_or_the_same_when_written_again(content: bytes) -> None:
    with scratch() as place:
        (place / run_records.CONDITIONS_FILE).write_bytes(content)
        found = harmless(lambda: run_records.read_conditions(place))
        if found is not None:
            run_records.write_conditions(place, found)
            assert run_records.read_conditions(place) == found


@fuzz(80, content=json_documents([{"runs": [{"folder": "00-a", "side": "a"}], "names": ["a", "b"]}]))
def test_damaged_sides_are_refused(content: bytes) -> None:
    with scratch() as place:
        (place / variants.SESSION_FILE).write_bytes(content)
        harmless(lambda: variants.read_session(place))
        harmless(lambda: variants.read_variants(place))


@fuzz(80, content=json_documents([{"run": RUN, "scheduler": "default-scheduler", "design_sha256": "0"}]))
def test_a_damaged_plan_is_refused(content: bytes, planned: Path) -> None:
    with scratch() as place:
        (place / "tables").symlink_to(planned / "tables")
        (place / workload_plan.PLAN_FILE).write_bytes(content)
        (place / run_records.SCENARIO_FILE).write_bytes(TEXTS[0])
        assert harmless(lambda: workload_plan.read_plan(place)) is None


@fuzz(
    120, rows=json_documents([[submitted("a"), submitted("b")]]), samples=json_documents([[sampled("a"), sampled("b")]])
)
def test_damaged_files_of_the_old_tool_are_refused_or_told(rows: bytes, samples: bytes) -> None:
    with scratch() as place:
        (place / "submitted.json").write_bytes(rows)
        (place / "sampled.json").write_bytes(samples)
        found = harmless(lambda: upstream.read_files(place))
        assert found is None or found.submitted or found.odd


KUBECONFIG = {
    "apiVersion": "v1", "kind": "Config", "current-context": "c",
    "clusters": [{"name": "k", "cluster": {"server": "https://127.0.0.1:1", "insecure-skip-tls-verify": True}}],
    "users": [{"name": "u", "user": {"token": "secret-of-the-user"}}],
    "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
}  # fmt: skip


@fuzz(100, document=restructured([KUBECONFIG]), raw=damaged([yaml.safe_dump(KUBECONFIG).encode()]), whole=st.booleans())
def test_a_damaged_kubeconfig_is_refused_without_its_secrets(document: Any, raw: bytes, whole: bool) -> None:
    try:
        content = yaml.safe_dump(document).encode("utf-8", "replace") if whole else raw
    except (yaml.YAMLError, RecursionError):
        return
    with scratch() as place:
        path = place / "config"
        path.write_bytes(content)
        for context in (None, "c"):
            harmless(lambda context=context: load_target(path, context))  # type: ignore[misc]


POD = {
    "metadata": {
        "name": "a",
        "namespace": "n",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-22T02:45:30Z",
        "labels": {"a": "b"},
        "ownerReferences": [{"kind": "Job", "name": "j", "uid": "v", "controller": True}],
    },
    "spec": {"nodeName": "node", "schedulerName": "default-scheduler"},
    "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-22T02:45:31Z"}],
        "containerStatuses": [{"state": {"running": {"startedAt": "2026-11-22T02:45:31Z"}}}],
    },
}
KINDS = (object_ledger.Pod, object_ledger.Thing, object_ledger.Event, object_ledger.Node)


@fuzz(150, content=json_documents([{"type": "MODIFIED", "object": POD}, {"type": "ERROR", "object": {"code": 410}}]))
def test_a_watchs_line_is_an_object_or_the_error_that_is_awaited(content: bytes) -> None:
    for kind in KINDS:
        try:
            harmless(lambda kind=kind: object_ledger.ObjectDecoder(kind).decode_line(content))  # type: ignore[misc]
        except msgspec.MsgspecError:
            continue


@fuzz(100, content=json_documents([{"metadata": {"resourceVersion": "5"}, "items": [POD, POD], "kind": "PodList"}]))
def test_a_lists_page_is_objects_or_the_error_that_is_awaited(content: bytes) -> None:
    for kind in KINDS:
        try:
            harmless(lambda kind=kind: object_ledger.ObjectDecoder(kind).decode_page(content))  # type: ignore[misc]
        except msgspec.MsgspecError:
            continue


@fuzz(
    150, user=st.text(max_size=30), agent=st.one_of(st.text(max_size=60), st.just("a/" * 50_000), st.just("(" * 50_000))
)
def test_a_client_has_a_short_name_whatever_it_calls_itself(user: str, agent: str) -> None:
    name = harmless(lambda: audit_log.find_client_name(user, agent))
    assert name is not None
    assert len(name) <= audit_log.MAX_CLIENT_CHARS
