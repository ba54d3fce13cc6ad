from __future__ import annotations

import copy
import json
import os
import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from workbench.core.errors import ConfigError, InputError
from workbench.indicators.analysis.effects import build_judgement, detect_drift, estimate_effects
from workbench.indicators.analysis.observations import load_observations
from workbench.indicators.compat_thoth import amun_import
from workbench.indicators.contract.indicator import Indicator, check, parameter, result
from workbench.indicators.store.archive import read_results, read_session
from workbench.indicators.store.archive_sync import sync_sessions
from workbench.indicators.store.benchmark_import import import_results
from workbench.indicators.store.import_formats import ImportOptions
from workbench.indicators.store.session_import import ImportReport
from workbench.indicators.store.sql_database import open_database
from workbench.indicators.store.sql_queries import Filters, run_query

HOST = "inspection-abc-1129319366"
MATMUL = {"dtype": "float32", "device": "cpu", "reps": 50, "matrix_size": 512}


def printed(name: str = "PiMatmul", parameters: dict[str, Any] | None = None, **results_: Any) -> dict[str, Any]:
    return {
        "name": name,
        "component": "tensorflow",
        "@parameters": dict(MATMUL if parameters is None else parameters),
        "@result": {"elapsed": 40.5, "rate": 134.5} | results_,
        "tensorflow_upstream_buildinfo": {"is_cuda_build": False},
    }


def result_of(stdout: Any, **more: Any) -> dict[str, Any]:
    return {
        "stdout": stdout,
        "stderr": f"running on {HOST}\n",
        "exit_code": 0,
        "script_sha256": "a" * 64,
        "usage": {"ru_utime": 1.5, "ru_maxrss": 1000},
        "start_datetime": "2020-08-05T14:00:00",
        "end_datetime": "2020-08-05T14:00:02.5",
        "hostname": HOST,
        "hwinfo": {
            "cpu_info": {"brand_raw": "Model X", "family": 6, "model": 85, "count": 64},
            "platform": {"node": HOST, "machine": "x86_64"},
        },
        "runtime_environment": {"python_version": "3.6", "hardware": {"cpu_family": 6, "cpu_model": 85}},
    } | more


def specification(version: str = "2.2.0", **more: Any) -> dict[str, Any]:
    return {
        "base": "image",
        "identifier": "my-matmul",
        "python": {
            "requirements": {"packages": {"tensorflow": "*"}, "requires": {"python_version": "3.6"}},
            "requirements_locked": {"default": {"tensorflow": {"version": f"=={version}", "hashes": ["sha256:1"]}}},
        },
    } | more


def import_documents(paths: list[Path], out: Path, **options: Any) -> ImportReport:
    return import_results("amun", paths, out, ImportOptions(**options))


def inspection(folder: Path, *found: Any, specified: dict[str, Any] | None = None) -> Path:
    """Write an inspection in Amun's layout: its results are numbered from 0."""
    (folder / "build").mkdir(parents=True)
    (folder / "build" / "specification").write_text(json.dumps(specification() if specified is None else specified))
    for number, one in enumerate(found):
        (folder / "results" / str(number)).mkdir(parents=True)
        (folder / "results" / str(number) / "result").write_text(one if isinstance(one, str) else json.dumps(one))
    return folder


def imported(tmp_path: Path, *found: Any, **more: Any) -> ImportReport:
    return import_documents([inspection(tmp_path / "in" / "inspection-1", *found)], tmp_path / "out", **more)


def runs_of(report: ImportReport, session: int = 0) -> list[dict[str, Any]]:
    return load_observations(report.sessions[session].folder).runs.to_dicts()


def synced(report: ImportReport, tmp_path: Path) -> Any:
    database = open_database(tmp_path / "x.db")
    assert sync_sessions([one.folder for one in report.sessions], database).failed == 0
    return database


def test_an_inspection_becomes_a_session_of_blocks(tmp_path: Path) -> None:
    report = imported(tmp_path, *[result_of(printed()) for _ in range(3)])
    (one,) = report.sessions
    session = read_session(one.folder)
    assert (one.runs, one.ok, report.problems, report.notices) == (3, 3, [], {})
    assert (session.backend, session.design, session.baseline) == ("imported", "blocks", "tensorflow 2.2.0")
    assert session.arms[0].packages == {"tensorflow": "2.2.0"}
    assert session.hardware.cpu_model == "Model X"
    assert [(run["round"], run["status"], run["duration_s"]) for run in runs_of(report)] == [
        (number, "ok", 2.5) for number in range(3)
    ]
    assert [number for _, number, _ in read_results(one.folder, one.session)] == [0, 1, 2]


def test_nothing_may_be_concluded_from_imported_runs(tmp_path: Path) -> None:
    for number, version in enumerate(("2.2.0", "2.3.0")):
        documents = [result_of(printed(elapsed=40.0 / (1 + number))) for _ in range(12)]
        inspection(tmp_path / "in" / str(number), *documents, specified=specification(version))
    report = import_documents([tmp_path / "in"], tmp_path / "out")
    found = load_observations(report.sessions[0].folder)

    (row,) = build_judgement(found, estimate_effects(found), detect_drift(found)).to_dicts()

    assert row["verdict"] == "invalid"
    assert any("measured in blocks" in reason for reason in row["reasons"])


def test_importing_again_changes_nothing(tmp_path: Path) -> None:
    first = imported(tmp_path, result_of(printed()), result_of(printed()))
    with synced(first, tmp_path) as database:
        again = import_documents([tmp_path / "in" / "inspection-1", tmp_path / "in"], tmp_path / "out")

        assert again.sessions[0].folder == first.sessions[0].folder
        assert sync_sessions([tmp_path / "out"], database).skipped == 2


def test_locks_become_arms_and_the_first_is_the_baseline(tmp_path: Path) -> None:
    for number, version in enumerate(("2.2.0", "2.3.0", "2.2.0")):
        inspection(tmp_path / "in" / str(number), result_of(printed()), specified=specification(version))

    (one,) = import_documents([tmp_path / "in"], tmp_path / "out").sessions
    (other,) = import_documents([tmp_path / "in"], tmp_path / "out", baseline="tensorflow 2.3.0").sessions

    assert [arm.name for arm in one.session.arms] == ["tensorflow 2.2.0", "tensorflow 2.3.0"]
    assert other.session.baseline == other.session.arms[0].name == "tensorflow 2.3.0"
    counted = [(run["arm"], run["round"]) for run in load_observations(one.folder).runs.to_dicts()]
    assert counted == [("tensorflow 2.2.0", 0), ("tensorflow 2.2.0", 1), ("tensorflow 2.3.0", 0)]
    with pytest.raises(ConfigError, match="no such stack"):
        import_documents([tmp_path / "in"], tmp_path / "out", baseline="nix")


@pytest.mark.parametrize(
    "hidden",
    [
        {"environment": {"HUB_TOKEN": "hunter22"}},
        {"build": {"environment": [{"name": "GITHUB_PAT", "value": "hunter22"}]}},
        {"build": {"deep": [{"registryCredentials": {"user": "ann", "x": "hunter22"}}]}},
        {"run": {"apikey": "hunter22", "db_passwd": ["hunter22"], "PASSWORD": "hunter22"}},
        {"base": {"image": "x", "token": "hunter22"}},
        {"script": "https://ann:hunter22@example.org/s.py"},
        {"@amun_api_url": "https://hunter22.example.org"},
    ],
)
def test_secrets_are_cut_out_wherever_they_stand(tmp_path: Path, hidden: dict[str, Any]) -> None:
    specified = specification(kept="https://example.org/s.py", **hidden)
    where = inspection(tmp_path / "in" / "i", result_of(printed()), specified=specified)
    (one,) = import_documents([where], tmp_path / "out").sessions
    texts = [path.read_text() for path in one.folder.rglob("*") if path.is_file()]
    assert not any("hunter22" in text for text in texts)
    assert any("[redacted]" in text for text in texts) or {"script", "@amun_api_url"} & hidden.keys()
    (path,) = one.folder.rglob("specification")
    kept = json.loads(path.read_text())
    assert kept["kept"] == kept.get("script", kept["kept"]) == "https://example.org/s.py"


def test_machines_are_kept_apart_parameters_make_cases_and_scripts_of_one_name_versions(tmp_path: Path) -> None:
    large, other = printed(parameters=MATMUL | {"matrix_size": 1024}), {"cpu_info": {"brand_raw": "Model Y"}}
    found = [result_of(printed()), result_of(large), result_of(printed(), hwinfo=other, script_sha256="b" * 64)]
    report = imported(tmp_path, *found)
    assert [one.session.hardware.cpu_model for one in report.sessions] == ["Model X", "Model Y"]
    labels = [case.label for case in report.sessions[0].session.cases]
    assert labels == ["PiMatmul[matrix_size=512]", "PiMatmul[matrix_size=1024]"]
    (one,) = import_documents(
        [inspection(tmp_path / "two", found[0], found[2] | {"hwinfo": found[0]["hwinfo"]})], tmp_path / "o"
    ).sessions
    versions = {case.indicator_version for case in one.session.cases}
    assert len(versions) == 2
    assert {case.label for case in one.session.cases} == {f"PiMatmul@{version[:6]}" for version in versions}


def test_names_of_hosts_are_nowhere_and_a_document_of_one_time_has_no_duration(tmp_path: Path) -> None:
    found = result_of(printed(), node=HOST, datetime="2020-08-05T14:49:50.644642")
    del found["start_datetime"], found["end_datetime"]
    found["stdout"]["tensorflow_upstream_buildinfo"]["where"] = HOST
    report = imported(tmp_path, found)
    texts = [path.read_text() for path in report.sessions[0].folder.rglob("*") if path.is_file()]
    assert [HOST in text for text in texts] == [False] * 3
    (run,) = runs_of(report)
    assert (run["started_at"], run["duration_s"]) == ("2020-08-05T14:49:50.644642", None)


def test_packages_of_a_lock_are_no_secrets_by_their_names() -> None:
    lock = {"default": {"tokenizers": {"version": "==0.19.1"}, "keyring": {"version": "==25.0.0"}}}
    specified = {"python": {"requirements": {"packages": {"keyring": "*"}}, "requirements_locked": lock}}

    assert amun_import.clean_specification(specified) == specified


def test_the_published_example_imports_as_it_is(shared: Path, tmp_path: Path) -> None:
    (one,) = import_documents([shared / "data" / "amun_example"], tmp_path / "out").sessions

    values = load_observations(one.folder).values["value"].round(2).to_list()
    assert values == [12.66, 15.10, 15.06]
    runs = load_observations(one.folder).runs
    assert runs["ru_nivcsw"].to_list() == [58_744, 144_003, 68_358]
    assert one.session.arms[0].name == "tensorflow 2.2.0"
    assert len(one.session.arms[0].packages) == 36
    with synced(ImportReport([one], [], {}), tmp_path) as database:
        typed = run_query(database, "values", Filters(indicator="PiConv2D")).frame
        assert typed["padding"].to_list() == ["SAME"] * 3
        assert typed["mini_batch"].to_list() == [None] * 3


def test_a_document_at_the_results_top_is_found(tmp_path: Path) -> None:
    hoisted = result_of(None) | printed()
    del hoisted["stdout"]

    report = imported(tmp_path, hoisted)

    assert load_observations(report.sessions[0].folder).values["value"].to_list() == [40.5]
    assert [run["ru_utime"] for run in runs_of(report)] == [1.5]


def test_a_signal_convolution_that_calls_itself_2d_is_known_by_its_fields(tmp_path: Path) -> None:
    report = imported(tmp_path, result_of(printed("PiConv2D", {"input_width": 161, "padding": 1})))
    assert report.sessions[0].session.cases[0].indicator == "PiConv1D"
    assert runs_of(report)[0]["status"] == "ok"
    assert report.notices == {"calls itself PiConv2D, but has no height: taken for PiConv1D": 1}
    assert any("taken for PiConv1D" in note for note in report.sessions[0].session.notes)


@pytest.mark.parametrize(
    ("found", "status", "reason"),
    [
        (result_of("No GPU available"), "not JSON", "it begins 'No GPU available'"),
        (result_of({}), "empty", "nothing on stdout"),
        (result_of(None), "empty", "nothing on stdout"),
        (result_of([1]), "not JSON", "a JSON object is needed"),
        (result_of(printed(), exit_code=3), "exit code", "exit code 3"),
        (result_of(printed(elapsed=float("nan"))), "not finite", "NaN"),
        (json.dumps(result_of(printed())).replace("40.5", "1e999"), "not finite", "Infinity"),
        (result_of(printed(ru_utime=-1)), "invalid document", "ru_utime"),
        (result_of(printed("PiPyPerformance")), "invalid document", "PiPyPerformance"),
        (result_of(printed() | {"@samples": {"elapsed": "x"}}), "invalid document", "@samples"),
        (result_of({"name": "x" * (1 << 20)}), "too long", "bytes on stdout"),
    ],
)
def test_what_has_no_values_has_a_status_and_a_reason(tmp_path: Path, found: Any, status: str, reason: str) -> None:
    report = imported(tmp_path, result_of(printed()), found)

    run = runs_of(report)[1]
    assert (run["status"], run["case"]) == (status, "PiMatmul")
    assert reason in run["reason"]
    assert (report.sessions[0].runs, report.sessions[0].ok) == (2, 1)
    with synced(report, tmp_path) as database:
        assert run_query(database, "failures").frame["status"].to_list() == [status]


def test_an_inspection_without_one_good_run_has_a_case_of_its_own(tmp_path: Path) -> None:
    report = imported(tmp_path, result_of("Traceback", exit_code=1))
    (run,) = runs_of(report)
    assert (run["case"], run["indicator"], run["status"]) == ("my-matmul", "unknown", "exit code")
    with synced(report, tmp_path) as database:
        assert run_query(database, "indicators").frame["table_name"].to_list() == [None]


def test_an_older_document_has_its_result_in_the_job_log(tmp_path: Path) -> None:
    log = result_of(printed())
    del log["start_datetime"], log["end_datetime"]
    older = {
        "inspection_id": "inspection-old",
        "specification": specification(),
        "build_log": "…",
        "job_log": log,
        "status": {"job": {"started_at": "2019-01-01T00:00:00Z", "finished_at": "2019-01-01T00:00:04Z", "node": HOST}},
    }
    (tmp_path / "old.json").write_text(json.dumps(older))
    (tmp_path / "failed.json").write_text(json.dumps(older | {"job_log": None}))

    report = import_documents([tmp_path / "old.json", tmp_path / "failed.json"], tmp_path / "out")

    (run,) = runs_of(report)
    assert (run["arm"], run["status"], run["duration_s"]) == ("tensorflow 2.2.0", "ok", 4.0)
    assert run["started_at"] == "2019-01-01T00:00:00Z"
    assert report.problems == [
        (tmp_path / "failed.json", "nothing was run: it has no job_log (did its build fail?)"),
    ]


def test_a_folder_of_printed_documents_is_read_by_component(shared: Path, tmp_path: Path) -> None:
    report = import_documents([shared / "golden" / "indicators"], tmp_path / "out")
    runs = {(run["case"].partition("[")[0], run["arm"]): run["status"] for run in runs_of(report)}
    good = [(name, arm) for name in ("PiConv1D", "PiConv2D", "PiMatmul") for arm in ("pytorch", "tensorflow")]
    good += [("PiHelloWorld", "tensorflow"), ("PiImport", "tensorflow")]
    assert runs == dict.fromkeys(good, "ok") | {("run_record_example", "numpy"): "invalid document"}
    with synced(report, tmp_path) as database:
        values = run_query(database, "observations").frame.filter(metric="PiMatmul[reps=2000]")["value"]
    assert values.round(4).to_list() == [0.6355]


class PiOwn(Indicator):
    """An indicator of the user's."""

    requires: ClassVar[tuple[str, ...]] = ()
    n: int = parameter(1)
    elapsed_ms: float = result(unit="ms", better="lower")
    ulp: float = check(at_most=1.0, unit="ULP")


def test_an_indicator_of_ones_own_may_be_named_and_its_checks_count(tmp_path: Path) -> None:
    document = {"name": "PiOwn", "@parameters": {"n": 1}, "@result": {"elapsed_ms": 2.0}, "@checks": {"ulp": 3.0}}

    unknown = imported(tmp_path, result_of(document))
    known = import_documents([tmp_path / "in"], tmp_path / "out", indicators=(f"{__name__}:PiOwn",))

    assert runs_of(unknown)[0]["status"] == "invalid document"
    (run,) = runs_of(known)
    assert (run["status"], run["passed"]) == ("ok", False)
    assert run["failed_checks"][0].startswith("ulp is 3")


def test_what_cannot_be_read_is_named_and_does_not_stop_the_rest(tmp_path: Path) -> None:
    deep = '{"stdout": ' + "[" * 60 + "]" * 60 + "}"
    where = inspection(tmp_path / "in" / "i", result_of(printed()), "{", "[" * 100_000, "[1]", deep)
    (where / "results" / "x").mkdir()
    (where / "results" / "x" / "result").write_text("{}")
    (where / "results" / "9").mkdir()
    (where / "results" / "9" / "result").write_bytes(b" " * (9 << 20))
    (where / "results" / "10").mkdir()
    os.mkfifo(where / "results" / "10" / "result")

    report = import_documents([where], tmp_path / "out")

    assert report.sessions[0].ok == 1
    assert [(path.parent.name, re.split(" found| allowed| where", reason)[0]) for path, reason in report.problems] == [
        ("x", "not the number of a result"),
        ("1", "not readable JSON"),
        ("2", "not readable JSON"),
        ("3", "a JSON object is needed"),
        ("4", "nested more than 50 deep"),
        ("9", "file is too large"),
        ("10", "not a regular file"),
    ]


def test_links_out_of_the_folder_given_are_not_followed(tmp_path: Path) -> None:
    secret = inspection(tmp_path / "elsewhere" / "theirs", result_of(printed(rate=77.0)))
    own = inspection(tmp_path / "in" / "own", result_of(printed()))
    (own / "results" / "1").symlink_to(secret / "results" / "0")
    (own / "results" / "2").symlink_to(own / "results" / "0")
    other = inspection(tmp_path / "in" / "other", result_of(printed()))
    (other / "build" / "specification").unlink()
    (other / "build" / "specification").symlink_to(secret / "build" / "specification")
    (tmp_path / "in" / "theirs").symlink_to(secret)
    (tmp_path / "in" / "x.json").symlink_to(secret / "results" / "0" / "result")
    (tmp_path / "in" / "circle.json").symlink_to(tmp_path / "in" / "circle.json")

    report = import_documents([tmp_path / "in"], tmp_path / "out")

    assert sorted(str(path.relative_to(tmp_path / "in")) for path, reason in report.problems) == [
        "other/build/specification", "own/results/1/result", "theirs", "x.json",
    ]  # fmt: skip
    assert {reason for _, reason in report.problems} == {amun_import.OUTSIDE}
    assert report.sessions[0].runs == 2
    (tmp_path / "link").symlink_to(own)
    assert import_documents([tmp_path / "link"], tmp_path / "out").sessions[0].ok == 1, "one that is given itself"


def test_a_specification_of_nonsense_leaves_the_stack_unknown(tmp_path: Path) -> None:
    odd = {"python": [1], "environment": {"a": 1}, "base": {"x": 1}, "identifier": 7, "packages": [None]}
    where = inspection(tmp_path / "in" / "i", result_of(printed(), usage="none", hwinfo=[1]), specified=odd)

    (one,) = import_documents([where], tmp_path / "out").sessions

    assert (one.ok, one.session.arms[0].packages) == (1, {})
    assert one.session.arms[0].notes["stack"] == "unknown: there is no lock"
    assert one.session.hardware.cpu_model == "unknown"


def test_more_than_one_import_can_hold_or_the_place_takes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").write_text("a file")
    where = inspection(tmp_path / "in", *[result_of(printed()) for _ in range(5)])
    with pytest.raises(ConfigError, match="cannot be written"):
        import_documents([where], tmp_path / "out")
    monkeypatch.setattr(amun_import, "MAX_TOTAL_BYTES", 3000)
    with pytest.raises(ConfigError, match="too much for one import"):
        import_documents([where], tmp_path / "out")


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("nothing", "nothing there"),
        ("empty", "no documents of Amun there"),
        ("session", "a session of this project already"),
        ("only damaged", "no readable run"),
    ],
)
def test_where_there_is_nothing_to_import_it_says_so(tmp_path: Path, what: str, told: str) -> None:
    where = tmp_path / "in"
    if what == "session":
        where = imported(tmp_path, result_of(printed())).sessions[0].folder
    elif what != "nothing":
        where.mkdir()
    if what == "only damaged":
        (where / "a.json").write_text("{")
    with pytest.raises(InputError, match=told) as error:
        import_documents([where], tmp_path / "out")
    assert error.value.exit_code == 2


def test_the_same_lock_on_another_image_is_another_stack() -> None:
    names: dict[str, str] = {}
    first = amun_import.build_arm(specification(), {}, None, names)
    other = amun_import.build_arm(specification(base="other"), {}, None, names)
    again = amun_import.build_arm(copy.deepcopy(specification()), {}, None, names)

    assert first == again
    assert first.stack_key != other.stack_key
    assert other.name == f"tensorflow 2.2.0 {other.stack_key[:6]}"
