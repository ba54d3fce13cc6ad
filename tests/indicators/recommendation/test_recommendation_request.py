"""Constraints: what each leaves out, with the reason, and what it keeps."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.indicators.recommendation import making
from tests.indicators.recommendation.making import NAMES, NUMPY, pair, recommended
from workbench.core.errors import ConfigError
from workbench.indicators.analysis.effects import compare_session
from workbench.indicators.recommendation.conclusion import Recommendation
from workbench.indicators.recommendation.recommendation_request import build_request, compute_age_days

NOW = datetime(2026, 11, 21, tzinfo=UTC)


def reasons(made: Recommendation) -> dict[str, str]:
    return dict(made.excluded.select("stack", "reason").iter_rows())


def dated(uploaded: str | None = None, yanked: bool | None = None) -> making.StackSet:
    """The stacks of numpy, the newest of them with these facts of the index; all others are old."""
    facts = {"2.4.6": {"uploaded": uploaded, "yanked": yanked}}
    old = {"uploaded": "2024-01-01T00:00:00Z", "yanked": False}
    return making.stack_set([making.stack({"numpy": v}, **facts.get(v, old)) for v in NUMPY])


def test_a_requirement_leaves_out_what_does_not_meet_it_and_an_exclusion_what_does() -> None:
    found = reasons(recommended(making.numpy_session(), require=("numpy>=2",)))
    told = "numpy {} does not meet the requirement numpy>=2"
    assert found == {NAMES[version]: told.format(version) for version in ("1.24.4", "1.26.4")}
    found = reasons(recommended(making.numpy_session(), exclude=("NumPy==2.4.6",)))
    assert found == {NAMES["2.4.6"]: "NumPy 2.4.6 is excluded by NumPy==2.4.6"}


def test_a_required_package_that_is_not_there_leaves_the_stack_out() -> None:
    made = recommended(making.numpy_session(), require=("Pandas",))
    assert set(reasons(made).values()) == {"Pandas is missing; Pandas is required"}
    assert (made.answer.stack, made.answer.kind) == (None, "nothing")


@pytest.mark.parametrize(
    "text",
    ["numpy>>2", "", "numpy[x]>=1", "numpy @ https://example.org/n.whl", 'numpy>=2; sys_platform == "linux"'],
)
def test_what_is_no_requirement_is_refused_before_anything_is_done(text: str) -> None:
    with pytest.raises(ConfigError):
        build_request(require=(text,))
    with pytest.raises(ConfigError):
        build_request(exclude=(text,))


def test_a_failed_check_leaves_the_stack_out_and_links_to_the_runs_that_show_it() -> None:
    found = making.numpy_session(failed_checks={(NAMES["1.24.4"], "Sin"): making.ULP})
    made = recommended(found, mix="sin=0.8,matmul=0.2")
    row = made.excluded.row(0, named=True)
    told = (NAMES["1.24.4"], "Checks", f"wrong answers: Sin: {making.ULP}")
    assert (row["stack"], row["unit"], row["reason"]) == told
    assert len(row["runs"]) == 10
    assert all("inspection-sin-" in run and run.endswith("/result") for run in row["runs"])
    assert row["link"] == row["runs"][0]
    # Without weight the case leaves nothing out.
    assert reasons(recommended(found, mix="matmul=1")) == {}


def test_a_check_held_against_the_baselines_answer_counts_too() -> None:
    session = making.plan([NUMPY["2.2.6"], NUMPY["2.4.6"]], ("Sort",), compared_checks=("digest",))
    found = making.observed(session, {})
    checks = making.digests(found.runs, {NAMES["2.4.6"]: "b"})
    made = recommended(compare_session(replace(found, checks=checks)))
    assert reasons(made) == {NAMES["2.4.6"]: "wrong answers: Sort: digest differs from the baseline's (b, baseline a)"}
    assert len(made.excluded["runs"][0]) == 10


@pytest.mark.parametrize(("failed", "left_out"), [((0,), False), ((0, 1), True)])
def test_a_stack_is_left_out_when_more_than_a_tenth_of_its_runs_failed(failed: tuple[int, ...], left_out: bool) -> None:
    name = NAMES["2.4.6"]
    made = recommended(pair(failed_runs={(name, "Sort"): failed}))
    if left_out:
        assert reasons(made) == {name: "2 of 10 runs failed: timeout"}
        assert len(made.excluded["runs"][0]) == 2
    else:
        assert reasons(made) == {}
        told = [one.message for stack, one in made.sentences if stack == name and one.type == "WARNING"]
        assert told == [f"1 of 10 runs of {name} failed"]
        assert made.table.filter(made.table["stack"] == name)["n"].to_list() == [9]


def test_more_failures_may_be_allowed_but_too_few_whole_rounds_leave_a_stack_out() -> None:
    found = pair(failed_runs={(NAMES["2.4.6"], "Sort"): (0, 1, 2)})
    assert reasons(recommended(found, max_failed_share=0.3)) == {}
    made = recommended(pair(failed_runs={(NAMES["2.4.6"], "Sort"): range(6)}), max_failed_share=1.0)
    assert reasons(made) == {NAMES["2.4.6"]: "4 complete round(s) of the mix, at least 5 are needed"}


def test_a_case_that_does_not_apply_leaves_the_stack_out_of_a_mix_with_it() -> None:
    session = making.plan([NUMPY["2.2.6"], NUMPY["2.4.6"]], ("Sort", "Sin"))
    skipped = session.cases[1].model_copy(update={"skipped": {NAMES["2.4.6"]: "has no scipy"}})
    session = session.model_copy(update={"cases": (session.cases[0], skipped)})
    found = compare_session(making.observed(session, {}))
    expected = {NAMES["2.4.6"]: "not measured in all cases of the mix: Sin: has no scipy"}
    made = recommended(found)
    assert reasons(made) == expected
    assert all(one.evidence.runs for _, one in made.sentences)
    assert reasons(recommended(found, mix="sort=1")) == {}


def osv(folder: Path, name: str = "numpy", **affected: object) -> Path:
    record = {"id": "PYSEC-7", "summary": "overflow"}
    record["affected"] = [{"package": {"ecosystem": "PyPI", "name": name}, **affected}]  # type: ignore[assignment]
    (folder / "osv.json").write_text(json.dumps([record]))
    return folder / "osv.json"


def test_a_known_vulnerability_leaves_the_stack_out_and_links_to_the_advisory(tmp_path: Path) -> None:
    ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "2.4"}]}]
    made = recommended(making.numpy_session(), vulnerabilities=osv(tmp_path, ranges=ranges))
    assert made.table["stack"].to_list() == [NAMES["2.4.6"]]
    row = made.excluded.filter(made.excluded["stack"] == NAMES["2.2.6"]).row(0, named=True)
    assert row["reason"] == "known vulnerability PYSEC-7 in numpy 2.2.6 (overflow)"
    assert row["link"] == "https://osv.dev/vulnerability/PYSEC-7"
    said = next(one for stack, one in made.sentences if stack == NAMES["2.2.6"] and one.type == "ERROR")
    assert (said.package_name, said.version_range) == ("numpy", "<2.4")
    # The baseline may not be kept: it is left out itself.
    assert (made.answer.stack, made.answer.kind) == (NAMES["2.4.6"], "best left")
    assert made.answer.sentence.endswith("; the baseline is excluded")


def test_security_wants_a_file_and_leaves_out_what_nobody_looked_at(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="vulnerabilities"):
        build_request(type="security")
    path = tmp_path / "audit.json"
    path.write_text(json.dumps({"dependencies": [{"name": "numpy", "version": "2.2.6", "vulns": []}]}))
    made = recommended(making.numpy_session(), type="security", vulnerabilities=path)
    assert made.table["stack"].to_list() == [NAMES["2.2.6"]]
    assert reasons(made)[NAMES["2.4.6"]] == "not audited for vulnerabilities: numpy 2.4.6"
    other = recommended(making.numpy_session(), type="performance", vulnerabilities=path)
    assert reasons(other) == {}
    assert any("not audited" in one.message for _, one in other.sentences)


@pytest.mark.parametrize(("named", "warned"), [("numpy", False), ("pandas", True)])
def test_security_by_osv_records_tells_which_packages_none_of_them_names(
    named: str, warned: bool, tmp_path: Path
) -> None:
    path = osv(tmp_path, named, versions=["0.1"])
    made = recommended(making.numpy_session(), type="security", vulnerabilities=path)
    assert reasons(made) == {}
    told = {stack: one.message for stack, one in made.sentences if one.type == "WARNING" and "OSV" in one.message}
    sentence = "{}: no OSV record names numpy: no known vulnerabilities, or not audited"
    assert told == ({name: sentence.format(name) for name in made.table["stack"]} if warned else {})


def test_a_stack_that_was_taken_back_is_left_out() -> None:
    made = recommended(making.numpy_session(), stacks=dated("2024-01-01T00:00:00Z", yanked=True))
    assert reasons(made) == {NAMES["2.4.6"]: "yanked from the index: numpy 2.4.6"}


@pytest.mark.parametrize(("settings", "days"), [({"min_age_days": 60.0}, 60), ({"type": "stable"}, 30)])
def test_a_stack_that_is_too_young_is_left_out(settings: dict[str, object], days: int) -> None:
    made = recommended(making.numpy_session(), stacks=dated("2026-11-11T00:00:00Z"), as_of=NOW, **settings)
    told = f"numpy 2.4.6 was uploaded 10 days ago, the minimum age is {days} days"
    assert reasons(made)[NAMES["2.4.6"]] == told


def test_an_unknown_age_is_left_out_when_the_user_asked_and_warned_of_when_the_type_did() -> None:
    asked = recommended(making.numpy_session(), stacks=dated(None), as_of=NOW, min_age_days=60)
    assert reasons(asked)[NAMES["2.4.6"]] == "the age of numpy is unknown"
    stable = recommended(making.numpy_session(), stacks=dated(None), as_of=NOW, type="stable")
    assert NAMES["2.4.6"] not in reasons(stable)
    told = [one.message for stack, one in stable.sentences if stack == NAMES["2.4.6"] and one.type == "WARNING"]
    assert told == [f"{NAMES['2.4.6']}: the age of numpy is unknown"]


def test_ages_are_told_from_any_form_of_a_time() -> None:
    assert compute_age_days("2026-11-20T00:00:00Z", NOW) == 1.0
    assert compute_age_days("2026-11-20T12:00:00.123456789Z", NOW) == pytest.approx(0.5, abs=1e-4)
    assert compute_age_days("2026-11-20T00:00:00", NOW) == 1.0


def test_a_pre_release_is_not_stable() -> None:
    early = making.stack({"numpy": "2.5.0rc1"})
    found = compare_session(making.observed(making.plan([NUMPY["2.2.6"], early], ("Sort",)), {}))
    assert reasons(recommended(found, type="stable")) == {early.name: "not a release: numpy 2.5.0rc1"}
    assert reasons(recommended(found)) == {}


def test_a_stable_stack_is_surely_not_worse_than_the_baseline() -> None:
    made = recommended(making.numpy_session(), type="stable", mix="sort=1")
    assert set(reasons(made)) == {NAMES["1.24.4"], NAMES["1.26.4"]}
    assert "the chance that it is not worse than the baseline is 0.0 %, below 97.5 %" in reasons(made)[NAMES["1.26.4"]]
    assert made.answer.stack == NAMES["2.2.6"]


def test_every_stack_is_either_ranked_or_left_out_with_a_reason() -> None:
    found = making.numpy_session(failed_checks={(NAMES["1.24.4"], "Sin"): making.ULP})
    made = recommended(found, require=("numpy>=1.25",), exclude=("numpy==2.0.2",))
    names = sorted([*made.table["stack"], *made.excluded["stack"]])
    assert names == sorted(NAMES.values())
    assert all(made.excluded["reason"])
