"""The calculator beside the real toolkit: the same drawn jobs through both, and our file read by its command."""

from __future__ import annotations

import json
import math
import subprocess
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.sizing import calc_cases, natenv
from workbench.core.errors import InputError
from workbench.sizing.compat_nat import calc_file, eval_dataset
from workbench.sizing.compat_nat.calculation import CalcGoal, Options
from workbench.sizing.compat_nat.calculator import CalculationResult, calculate_from_levels, run_calculation

SEEDS = range(400)
REL = 1e-9
pytestmark = [pytest.mark.network, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Pair:
    """One case as both sides saw it; `ours` is the refusal where there was nothing to read."""

    seed: int
    ours: CalculationResult | InputError
    theirs: dict[str, Any]


def goal_of(asked: dict[str, Any]) -> CalcGoal:
    return CalcGoal(
        asked["target_llm_latency"], asked["target_workflow_runtime"], asked["target_users"], asked["test_gpu_count"]
    )


def asked(path: Path, document: Any, *script: str | Path) -> Any:
    """What a script of the toolkit's own Python says of a document."""
    path.write_text(json.dumps(document))
    words = [natenv.require(), *script, path]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=900, env=natenv.environment())
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout[done.stdout.index("[") :])


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Pair]:
    root = tmp_path_factory.mktemp("drawn")
    cases = [{"folder": str(root / str(seed)), "goal": calc_cases.draw(seed, root / str(seed))} for seed in SEEDS]
    ours = [calculated(case) for case in cases]
    theirs = asked(root / "cases.json", cases, Path(__file__).with_name("toolkit_offline.py"))
    return [Pair(seed, mine, other) for seed, mine, other in zip(SEEDS, ours, theirs, strict=True)]


def calculated(case: dict[str, Any]) -> CalculationResult | InputError:
    options = Options(output_dir=Path(case["folder"]), goal=goal_of(case["goal"]), offline=True, write=False)
    try:
        return run_calculation(options)
    except InputError as error:
        return error


def alike(ours: Any, theirs: Any) -> bool:
    """The same, key order included, numbers to 1e-9."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return list(ours) == list(theirs) and all(alike(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list) and isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(alike, ours, theirs))
    if isinstance(ours, float) and isinstance(theirs, int | float):
        return math.isclose(ours, theirs, rel_tol=REL)
    return bool(ours == theirs)


def document(done: CalculationResult) -> Any:
    return json.loads(done.output.text())


def kind(pair: Pair) -> str:
    if isinstance(pair.ours, InputError):
        return "nothing to read"
    if "crash" in pair.theirs:
        return "crash"
    return "no LLM calls" if "no LLM call at any level" in " ".join(pair.ours.notices) else "answered"


def test_every_case_that_the_toolkit_answers_has_the_same_document(pairs: list[Pair]) -> None:
    answered = [pair for pair in pairs if kind(pair) == "answered"]
    different = [
        pair.seed
        for pair in answered
        if isinstance(pair.ours, CalculationResult) and not alike(document(pair.ours), pair.theirs["output"])
    ]
    print(Counter(map(kind, pairs)))
    assert different == []
    assert len(answered) > len(SEEDS) / 3
    estimates = [pair.theirs["output"]["gpu_estimates"] for pair in answered]
    assert sum(any(value is not None for value in found.values()) for found in estimates) > len(SEEDS) / 10


def test_where_the_toolkit_crashes_all_it_had_found_is_given_with_a_reason(pairs: list[Pair]) -> None:
    crashed = [pair for pair in pairs if kind(pair) == "crash"]
    assert len(crashed) > len(SEEDS) / 10
    for pair in crashed:
        done, before = pair.ours, pair.theirs
        assert isinstance(done, CalculationResult)
        assert done.exit_code == 2, pair.seed
        ours = document(done)
        fits = {"llm_latency": "llm_latency_fit", "wf_runtime": "wf_runtime_fit"}
        assert alike({name: ours["fit_results"][key] for name, key in fits.items()}, before["fits"]), pair.seed
        estimates = {name: ours["gpu_estimates"][f"gpu_estimate_by_{name}"] for name in fits}
        assert alike(estimates, before["estimates"]), pair.seed
        levels = ours["calc_data"]
        assert alike({n: levels[n]["gpu_estimates"] for n in before["rough"]}, before["rough"]), pair.seed
        assert alike({n: levels[n]["alerts"] for n in before["alerts"]}, before["alerts"]), pair.seed
        assert [a for a in done.calculation.answers if a.refused and a.gpus is None and a.reason], pair.seed


def test_without_llm_calls_only_what_rests_on_runtime_is_added(pairs: list[Pair]) -> None:
    without = [pair for pair in pairs if kind(pair) == "no LLM calls"]
    assert without
    for pair in without:
        assert isinstance(pair.ours, CalculationResult)
        ours, theirs = document(pair.ours), pair.theirs["output"]
        assert set(theirs["gpu_estimates"].values()) == {None}
        assert ours["gpu_estimates"]["gpu_estimate_by_llm_latency"] is None
        assert ours["fit_results"]["llm_latency_fit"] is None
        measured = {n: level["sizing_metrics"] for n, level in ours["calc_data"].items()}
        assert alike(measured, {n: level["sizing_metrics"] for n, level in theirs["calc_data"].items()})


def test_where_nothing_can_be_read_the_toolkit_has_no_level_either(pairs: list[Pair]) -> None:
    unread = [pair for pair in pairs if kind(pair) == "nothing to read"]
    assert unread
    assert [pair.seed for pair in unread if pair.theirs.get("output", {}).get("calc_data") != {}] == []


def test_the_toolkit_reads_our_file_and_prints_our_number(tmp_path: Path) -> None:
    natenv.require()
    drawn = tmp_path / "drawn" / "online" / "job_1"
    metrics = {
        level: calc_file.SizingMetrics(
            llm_latency_p95=0.3 + 0.0123 * level,
            workflow_runtime_p95=1.7 + 0.0457 * level + 0.01 * (level % 3),
            total_runtime=4.0,
            alerts=calc_file.MetricAlerts(workflow_interrupted=level == 64),
            per_item_metrics={"a b": calc_file.ItemMetrics(llm_latency=0.3, workflow_runtime=1.5 + 0.05 * level)},
        )
        for level in (1, 2, 4, 8, 16, 32, 64)
    }
    done = calculate_from_levels(metrics, CalcGoal(0.5, 2.5, 300, 4))
    calc_file.write_calc_file(drawn / calc_file.CALC_FILE_NAME, done.output)
    said = natenv.nat(
        *("sizing", "calc", "--offline_mode", "--calc_output_dir", tmp_path / "drawn"),
        *("--target_llm_latency", "0.5", "--target_workflow_runtime", "2.5", "--target_users", "300"),
        *("--test_gpu_count", "4"),
        cwd=tmp_path,
    )
    assert said.returncode == 0, said.stderr[-2000:]
    written = json.loads(next((tmp_path / "drawn" / "offline").glob("job_*/calc_runner_output.json")).read_text())
    assert alike(document(done), written)
    estimates = done.output.gpu_estimates
    assert estimates.gpu_estimate_by_wf_runtime is not None
    assert estimates.gpu_estimate_by_llm_latency is not None
    assert f"Estimated GPU count (Workflow Runtime): {estimates.gpu_estimate_by_wf_runtime:.1f}" in said.stdout
    assert f"Estimated GPU count (LLM Latency): {estimates.gpu_estimate_by_llm_latency:.1f}" in said.stdout


ODD_LEVELS = ["01", " 1", "1.0", "1.5", "1e1", "-1", "0", "+3", "1_0", "", "one"]
ODD_VALUES = ["NaN", "Infinity", "1e400", "-1", "true", "null", "[]", '"1.5"', '"1e3"', '"nan"', '" 2 "', '"1,5"', '""']
ODD_DOCUMENTS = [
    *("", "[]", "null", "{}", "\ufeff{}", '{"a": 1} x', '{"calc_data": null}', '{"calc_data": {"1": null}}'),
    *('{"calc_data": {"1": {}, "01": {}}}', '{"calc_data": {"1": {"sizing_metrics": {"alerts": null}}}}'),
    '{"calc_data": {"1": {"sizing_metrics": {"alerts": {"workflow_interrupted": "yes"}}}}}',
    '{"calc_data": {"1": {"sizing_metrics": {"alerts": {"workflow_interrupted": 2}}}}}',
    '{"calc_data": {"1": {"alerts": {"num_items_greater_than_target_latency": "3"}}}}',
    '{"fit_results": {"llm_latency_fit": {"slope": 1}}}',
    *(json.dumps({"calc_data": {level: {}}}) for level in ODD_LEVELS),
    *(f'{{"calc_data": {{"1": {{"sizing_metrics": {{"llm_latency_p95": {value}}}}}}}}}' for value in ODD_VALUES),
]
READING = """
import json, sys
from nat.plugins.profiler.calc.data_models import CalcRunnerOutput

found = []
for text in json.load(open(sys.argv[1])):
    try:
        found.append(CalcRunnerOutput.model_validate_json(text).model_dump_json(indent=2))
    except ValueError:
        found.append(None)
json.dump(found, sys.stdout)
"""


def test_odd_documents_are_taken_or_refused_alike_and_written_alike(tmp_path: Path) -> None:
    theirs = asked(tmp_path / "odd.json", ODD_DOCUMENTS, "-c", READING)
    assert {text is None for text in theirs} == {True, False}
    for text, expected in zip(ODD_DOCUMENTS, theirs, strict=True):
        (tmp_path / "f.json").write_text(text)
        try:
            ours = calc_file.read_calc_file(tmp_path / "f.json")[0].text()
        except InputError:
            ours = None
        assert ours == expected, text


DATASETS = """
import json, sys
from nat.data_models.dataset_handler import EvalDatasetJsonConfig
from nat.plugins.eval.dataset_handler.dataset_handler import DatasetHandler

found = []
for case in json.load(open(sys.argv[1])):
    given = EvalDatasetJsonConfig.model_validate(case["config"])
    handler = DatasetHandler(
        given, reps=1, concurrency=case["concurrency"], num_passes=case["passes"], adjust_dataset_size=True
    )
    items = handler.get_eval_input_from_dataset(None).eval_input_items
    found.append([[str(item.id), item.input_obj] for item in items])
json.dump(found, sys.stdout)
"""


def test_levels_hold_the_rows_that_the_toolkit_puts_into_them(tmp_path: Path) -> None:
    rows = [{"id": number % 9, "question": f"q{number}", "kind": "ab"[number % 2]} for number in range(11)]
    rows.append({"id": "x_rep4", "question": "late", "kind": "a"})
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    filters = ({}, {"allowlist": {"field": {"kind": ["a*"]}}}, {"denylist": {"field": {"id": [1, "x*"]}}})
    shapes = ({}, {"disable": True}, {"question_key": "kind"})
    cases = [
        {
            "config": {"_type": "json", "file_path": str(tmp_path / "rows.json"), "filter": chosen, "structure": shape},
            "concurrency": concurrency,
            "passes": passes,
        }
        for chosen in filters
        for shape in shapes
        for concurrency, passes in ((1, 0), (3, 0), (4, 2), (16, 0), (7, 3), (32, 1))
    ]
    for case, expected in zip(cases, asked(tmp_path / "cases.json", cases, "-c", DATASETS), strict=True):
        (tmp_path / "w.yml").write_text(json.dumps({"eval": {"general": {"dataset": case["config"]}}}))
        items = eval_dataset.read_dataset(tmp_path / "w.yml").items_for_level(
            case["concurrency"], num_passes=case["passes"], seed=None
        )
        assert [item.id for item in items] == [identity for identity, _ in expected], case
        assert [plain(item.prompt) for item in items] == [plain(prompt) for _, prompt in expected], case


def plain(prompt: str) -> Any:
    """JSON is compared by value: ids of whole rows become texts in ours."""
    found = json.loads(prompt) if prompt.startswith("{") else prompt
    return {name: str(value) for name, value in found.items()} if isinstance(found, dict) else found


@pytest.fixture(scope="module")
def workflow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A workflow of four model calls at once, and the plug-in that it needs."""
    natenv.require()
    folder = tmp_path_factory.mktemp("workflow")
    (folder / "q.json").write_text(json.dumps([{"id": n, "question": f"q{n}"} for n in range(8)]))
    config = natenv.workflow(folder, questions=folder / "q.json", slots=4, calls=2, call_s=0.05, fail_above=12)
    return config, natenv.plugin(folder)


LEVELS = (1, 2, 4, 8, 16)
GOAL = CalcGoal(0.0, 0.5, 100, 1)


def test_the_toolkits_workflow_is_run_as_the_toolkit_runs_it(
    workflow: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, plugins = workflow
    for name, value in natenv.environment(plugins).items():
        monkeypatch.setenv(name, value)
    asked = Options(
        output_dir=tmp_path / "ours",
        config_file=config,
        concurrencies=LEVELS,
        num_passes=2,
        goal=GOAL,
        nat_python=str(natenv.require()),
        plots=False,
    )
    done = run_calculation(asked)
    said = natenv.nat(
        *("sizing", "calc", "--config_file", config, "--calc_output_dir", tmp_path / "theirs"),
        *("--concurrencies", ",".join(map(str, LEVELS)), "--num_passes", "2", "--target_workflow_runtime", "0.5"),
        *("--target_users", "100", "--test_gpu_count", "1"),
        cwd=tmp_path,
        plugins=plugins,
    )
    assert said.returncode == 0, said.stderr[-2000:]
    written = next((tmp_path / "theirs" / "online").glob("job_*/calc_runner_output.json"))
    theirs = calc_file.read_calc_file(written)[0].calc_data
    ours = done.output.calc_data
    assert list(ours) == list(theirs)
    for level in LEVELS:
        mine, other = ours[level].sizing_metrics, theirs[level].sizing_metrics
        # Above 12 in flight the workflow fails: both tag that level.
        assert mine.alerts.workflow_interrupted == other.alerts.workflow_interrupted == (level == 16)
        if level < 16:
            assert len(mine.per_item_metrics) == len(other.per_item_metrics) == 2 * level
            # Two calls of 0.05 s, four at once: what no machine's load can undercut.
            least_s = 0.1 * max(1, level / 4)
            assert min(mine.workflow_runtime_p95, other.workflow_runtime_p95) > 0.99 * least_s
    offline = natenv.nat(
        *("sizing", "calc", "--offline_mode", "--calc_output_dir", tmp_path / "ours", "--target_users", "100"),
        *("--target_workflow_runtime", "0.5", "--test_gpu_count", "1"),
        cwd=tmp_path,
    )
    assert offline.returncode == 0, offline.stderr[-2000:]
    again = json.loads(next((tmp_path / "ours" / "offline").glob("job_*/calc_runner_output.json")).read_text())
    assert alike(document(done), again)


def test_a_served_workflow_shows_its_wait_before_the_server_begins(workflow: tuple[Path, Path], tmp_path: Path) -> None:
    """`nat serve` lets eight in at once; the wait before that is in no event of its own."""
    config, plugins = workflow
    with natenv.serving(config, plugins=plugins) as url:
        asked = {"config_file": config, "concurrencies": (2, 32), "num_passes": 3, "goal": GOAL, "endpoint": url}
        ours = run_calculation(Options(**asked))
        theirs = run_calculation(Options(**asked, server_clock=True))
    assert not any(level.sizing_metrics.alerts.workflow_interrupted for level in ours.output.calc_data.values())
    top = {name: done.output.calc_data[32].sizing_metrics for name, done in (("client", ours), ("server", theirs))}
    # Four calls at once: 32 runs of two calls take at least 8 times 0.1 s, of which the server counts 8 runs' worth.
    assert top["client"].workflow_runtime_p95 > 0.6
    assert top["server"].workflow_runtime_p95 < 0.75 * top["client"].workflow_runtime_p95
    assert any("waits before the server starts" in notice for notice in ours.notices)
