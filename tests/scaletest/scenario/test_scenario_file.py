"""Scenarios: short ones work, wrong ones tell every mistake with its line, hostile ones are refused cheaply."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scaletest.making_scenarios import refused, scenario
from workbench.core.errors import ConfigError, InputError
from workbench.scaletest.scenario import scenario_file as scenarios
from workbench.scaletest.scenario.workload_objects import list_kinds
from workbench.scaletest.scenario.workload_plan import draw_plan, summarize_plan

SIX_LINES = """name: first-test
arrival: {process: constant, rate_per_s: 10, n: 100}
workloads:
  - kind: Job
    gpus: 1
    lifetime: 30
"""
CONFIG = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"of": "${name}"}}
SAMPLES = Path(__file__).parents[3] / "data" / "samples" / "scaletest" / "scenarios"


def test_six_lines_are_a_first_test() -> None:
    found = scenarios.parse_scenario(SIX_LINES)
    assert found.namespaces == ("workbench-scaletest",)
    assert found.schedulers == ("default-scheduler",)
    assert (found.limits.objects, found.limits.rate_per_s, found.limits.in_flight) == (1000, 20.0, 64)
    assert len(draw_plan(found)) == 100


def test_the_abort_criteria_are_on_by_default() -> None:
    found = scenarios.parse_scenario(SIX_LINES).abort
    assert (found.no_create_s, found.api_p99_s, found.api_p99_for_s) == (30, 5, 30)
    assert (found.errors_share, found.errors_window_s, found.watch_lag_s) == (0.05, 60, 5)
    assert found.others_evicted
    assert found.node_not_ready
    assert found.keep_sampling_s == 60
    assert not found.cleanup


def test_the_printed_example_can_be_planned_and_shows_every_field() -> None:
    text = scenarios.read_example()
    assert len(draw_plan(scenarios.parse_scenario(text))) == 200
    for model in (scenarios.Scenario, scenarios.ScenarioLimits, scenarios.AbortCriteria, scenarios.WorkloadEntry):
        for field in model.model_fields:
            assert field in text, f"{model.__name__}.{field} is not in the example"


def test_the_shipped_scenarios_can_be_planned() -> None:
    shipped = sorted(SAMPLES.glob("*.yaml"))
    assert len(shipped) >= 4
    for found in map(scenarios.load_scenario, shipped):
        plans = [draw_plan(found, scheduler=scheduler) for scheduler in found.schedulers]
        assert all(len(plan) > 0 for plan in plans), found.name
    assert [scenarios.load_scenario(path).name for path in shipped] == [path.stem for path in shipped]


def test_every_mistake_is_told_at_once_each_with_its_line_and_field() -> None:
    told = refused(
        "name: Bad Name\n"
        "arrival: {process: poison, rate_per_s: 1, n: 1}\n"
        "workloads:\n"
        "  - {kind: Job, gpus: -1, colour: red}\n"
        "  - kind: Pod\n"
        "    lifetime: {distribution: fixed}\n"
        "namespace: kube-system\n"
        "limits:\n"
        "  objects: 0\n"
    )
    assert "7 mistake(s)" in told
    assert "line 1: name: must be 1 to 63" in told
    assert "line 2: arrival: " in told
    assert "'poisson'" in told
    assert "line 4: workloads[0].gpus: " in told
    assert "line 4: workloads[0].colour: there is no such field" in told
    assert "line 6: workloads[1].lifetime.s: is missing" in told
    assert "namespaces: kube-system is the cluster's own" in told
    assert "line 9: limits.objects: " in told
    assert "plan --example" in told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "a scenario is a mapping"),
        ("- a", "a scenario is a mapping"),
        ("just words", "a scenario is a mapping"),
        ("a: [", "not YAML"),
        ("a: \x00", "not YAML"),
        ("a: &x [1]\nb: *x", "line 2"),
        ("a: &x {b: 1}\nc: {<<: *x}", "aliases"),
        ("name: !!python/object/apply:os.system [echo]", "a YAML tag that is not taken"),
        ("name: !!binary aGk=", "a YAML tag that is not taken"),
        ("name: a\nname: b", "a key is given twice"),
        ("? [a, b]\n: c", "a key must be a plain text"),
        ("seed: " + "9" * 5000, "too many digits"),
        ("a: " + "[" * 60 + "]" * 60, "too deep"),
        ("name: a\n---\nname: b", "not YAML"),
    ],
)
def test_hostile_or_broken_yaml_is_refused_in_words(text: str, told: str) -> None:
    assert told in refused(text)


def test_a_bomb_of_aliases_is_refused_before_it_grows() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    assert "aliases" in refused("\n".join(lines))


def test_a_file_beyond_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from workbench.scaletest.scenario import safe_yaml

    monkeypatch.setattr(safe_yaml, "MAX_BYTES", 100)
    path = tmp_path / "large.yaml"
    path.write_text("name: " + "a" * 200)
    with pytest.raises(InputError, match="too large"):
        scenarios.load_scenario(path)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(max_size=200))
def test_any_text_is_refused_or_taken_but_never_a_traceback(text: str) -> None:
    # No such text is a whole scenario.
    with pytest.raises(InputError):
        scenarios.parse_scenario(text)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(["name", "seed", "schedulers", "namespaces", "arrival", "workloads", "limits", "abort"]), VALUES)
def test_any_value_in_any_field_is_refused_in_words_or_can_be_planned(field: str, value: Any) -> None:
    import yaml

    given = yaml.safe_load(SIX_LINES) | {field: value}
    with contextlib.suppress(InputError, ConfigError):
        draw_plan(scenarios.parse_scenario(yaml.safe_dump(given)))


@pytest.mark.parametrize(
    "namespace", ["default", "kube-system", "kube-anything", "runai", "gpu-operator", "kai-scheduler", "nvidia-x"]
)
def test_the_clusters_own_namespaces_are_refused_however_they_are_given(namespace: str) -> None:
    with pytest.raises(ValueError, match="the cluster's own"):
        scenario(namespaces=[namespace])
    with pytest.raises(ValueError, match="the cluster's own"):
        scenario({"kind": "Job", "namespace": namespace})


def test_a_project_namespace_of_runai_may_be_named() -> None:
    assert scenario(namespace="runai-team-a").namespaces == ("runai-team-a",)


@pytest.mark.parametrize("name", ["", "a" * 64, "Ünïcode", "a_b", "-a", "a-", "a.b", "a b", "名前", "a\n"])
def test_a_name_that_the_cluster_would_not_take_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="1 to 63"):
        scenario(name=name)


def test_the_stock_scheduler_has_no_fractions() -> None:
    with pytest.raises(ValueError, match=r"workloads\[0\].fraction: .* whole GPUs only"):
        scenario({"kind": "Pod", "fraction": 0.5}, schedulers=["kai", "default"])
    assert scenario({"kind": "Pod", "fraction": 0.5}, scheduler="kai").workloads[0].gpus_per_pod == 0.5


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"kind": "Pod", "parallelism": 4}, "parallelism is for Job only"),
        ({"kind": "Job", "pods": 4}, "pods is for Gang and PyTorchJob and Template only"),
        ({"kind": "Gang"}, "two pods or more"),
        ({"kind": "Job", "parallelism": 4, "completions": 2}, "completions is below parallelism"),
        ({"kind": "Pod", "gpus": 2, "fraction": 0.5}, "gpus or fraction"),
        ({"kind": "Template"}, "needs `template`"),
        ({"kind": "Pod", "memory": "lots"}, "not a quantity"),
        ({"kind": "Pod", "memory": "1Ki"}, "greater than or equal to"),
        ({"kind": "Pod", "labels": {"workbench.local/run-id": "x"}}, "the workbench's own"),
        ({"kind": "Pod", "labels": {"a b": "x"}}, "no key of a label"),
        ({"kind": "Pod", "labels": {"a": "no, sir"}}, "no value of a label"),
        ({"kind": "Pod", "image": "a b; rm"}, "no name of an image"),
        ({"kind": "Pod", "gpus": 10**9}, "less than or equal to 64"),
        ({"kind": "Pod", "weight": 0}, "greater than 0"),
        ({"kind": "Gang", "pods": 2, "owned": [CONFIG]}, "without an object that could own anything"),
        ({"kind": "Job", "owned": [CONFIG, {"apiVersion": "v1", "kind": "Secret"}]}, r"owned\[1\]: .* Secret of v1"),
        ({"kind": "Job", "owned": [CONFIG | {"metadata": {"ownerReferences": []}}]}, "take it out"),
    ],
)
def test_an_entry_that_cannot_be_is_refused_with_the_reason(entry: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        scenario(entry, scheduler="kai")


def test_two_entries_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two entries have one name"):
        scenario({"kind": "Job", "name": "a"}, {"kind": "Pod", "name": "a"})


def test_real_nodes_need_an_image() -> None:
    with pytest.raises(ValueError, match=r"workloads\[0\].image"):
        scenario({"kind": "Job"}, allow_real_nodes=True)


def test_the_canonical_text_reads_as_the_same_scenario_and_is_its_own_canonical_text() -> None:
    found = scenarios.parse_scenario(scenarios.read_example())
    text = scenarios.format_canonical(found)
    again = scenarios.parse_scenario(text)
    assert again == found
    assert scenarios.format_canonical(again) == text
    assert scenarios.hash_scenario(again) == scenarios.hash_scenario(found)


def test_files_beside_the_scenario_are_taken_in(tmp_path: Path) -> None:
    (tmp_path / "times.txt").write_text("0\n1\n1\n")
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\nspec: {containers: []}\n")
    path = tmp_path / "s.yaml"
    path.write_text(
        "name: s\narrival: {process: trace, file: times.txt}\nworkloads: [{kind: Template, template: pod.yaml}]\n"
    )
    found = scenarios.load_scenario(path)
    assert found.arrival.times_s == (0.0, 1.0, 1.0)  # type: ignore[union-attr]
    assert (found.workloads[0].template or {})["kind"] == "Pod"
    assert scenarios.parse_scenario(scenarios.format_canonical(found)) == found  # needs no file any more


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "link", "nowhere.txt", ".", "a\0b"])
def test_a_scenario_reads_nothing_outside_its_own_folder(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.txt").write_text("0\n")
    folder = tmp_path / "scenario"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path / "secret.txt")
    text = f"name: s\narrival: {{process: trace, file: {name!r}}}\nworkloads: [{{kind: Job}}]\n".replace("'", '"')
    with pytest.raises(InputError, match=r"arrival\.file"):
        scenarios.parse_scenario(text.replace("\\x00", "\\0"), "s", folder)


def test_a_text_without_a_folder_names_no_files() -> None:
    told = refused("name: s\narrival: {process: trace, file: a}\nworkloads: [{kind: Job}]")
    assert "a file cannot be named here" in told


def test_a_trace_that_is_none_tells_its_line(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("1\ntwo\n")
    with pytest.raises(InputError, match="line 2"):
        scenarios.parse_scenario("name: s\narrival: {process: trace, file: t}\nworkloads: [{kind: Job}]", "s", tmp_path)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ([{"at_s": 5, "do": "fail", "nodes": 1}, {"at_s": 4, "do": "return", "nodes": 1}], "earlier than the previous"),
        ([{"at_s": 5, "do": "drain", "nodes": 1}, {"at_s": 6, "do": "return", "nodes": 2}], "more come back"),
        ([{"at_s": 5, "do": "explode", "nodes": 1}], "node_changes[0].do"),
    ],
)
def test_changes_of_nodes_that_cannot_be_are_refused(changes: list[dict[str, Any]], told: str) -> None:
    with pytest.raises(InputError) as caught:
        scenarios.parse_scenario(SIX_LINES + f"node_changes: {json.dumps(changes)}\n")
    assert told in str(caught.value)


def test_a_scenario_without_changes_of_nodes_keeps_the_hash_that_it_had_before_there_were_any() -> None:
    text = scenarios.format_canonical(scenarios.parse_scenario(SIX_LINES))
    assert "node_changes" not in text
    assert "node_labels" not in text


def test_what_a_workload_owns_is_made_counted_and_deleted_and_not_watched(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(json.dumps(CONFIG))
    (tmp_path / "scenario.yaml").write_text(SIX_LINES + "    owned: [config.yaml]\n")
    found = scenarios.load_scenario(tmp_path / "scenario.yaml")
    assert found.workloads[0].owned == (CONFIG,)
    assert [one.plural for one in list_kinds(found)] == ["jobs"]
    assert {one.plural for one in list_kinds(found, owned=True)} == {"jobs", "configmaps"}
    assert summarize_plan(draw_plan(found)).objects == {"ConfigMap": 100, "Job": 100}


def test_short_names_of_schedulers() -> None:
    found = scenario(schedulers=["default", "kai", "volcano"]).schedulers
    assert found == ("default-scheduler", "kai-scheduler", "volcano")
    with pytest.raises(ValueError, match="named twice"):
        scenario(schedulers=["default", "default-scheduler"])
    with pytest.raises(ConfigError, match="no name of a scheduler"):
        scenarios.expand_scheduler_name("a b")
