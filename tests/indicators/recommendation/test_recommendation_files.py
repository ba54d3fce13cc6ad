"""Locks of the recommended stack: as requirements, as pylock.toml from an index of the test's own, and refusals."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.indicators.recommendation import making
from tests.indicators.stacks.making import Made, local_index
from workbench.core.errors import ConfigError, InputError
from workbench.indicators.analysis.effects import compare_session
from workbench.indicators.recommendation import recommender
from workbench.indicators.recommendation.conclusion import Recommendation
from workbench.indicators.stacks import stack_sets
from workbench.indicators.stacks.package_index import this_platform
from workbench.indicators.stacks.stack_sets import Package, StackSet, build_stack

WHEELS = [Made("numpy", "2.2.6"), Made("numpy", "2.4.6")]
Found = tuple[Recommendation, StackSet]


@pytest.fixture(scope="module")
def found() -> Found:
    """Two stacks of an index of our own; the second is faster."""
    stacks = [
        build_stack(
            [Package(name="numpy", version=one.version, hashes=(f"sha256:{one.sha256}",))],
            python="3.11", platform=this_platform(), name=f"numpy {one.version}",
        )
        for one in WHEELS
    ]  # fmt: skip
    session = making.plan(stacks, ("Sort",))
    solved = making.stack_set(stacks)
    made = making.recommended(compare_session(making.observed(session, {("numpy 2.4.6", "Sort"): -0.3})), stacks=solved)
    return made, solved


def test_requirements_hold_the_recommended_lock(found: Found, tmp_path: Path) -> None:
    path = recommender.write_requirements(*found, tmp_path / "requirements.txt")
    assert path.read_text() == f"numpy==2.4.6 \\\n    --hash=sha256:{WHEELS[1].sha256}\n"


def test_pylock_names_the_very_file_of_the_lock(found: Found, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_DEFAULT_INDEX", local_index(tmp_path / "index", WHEELS).as_uri())
    path = recommender.write_pylock(*found, tmp_path / "pylock.toml")
    document = tomllib.loads(path.read_text())
    assert [(one["name"], one["version"]) for one in document["packages"]] == [("numpy", "2.4.6")]
    assert document["packages"][0]["wheels"][0]["hashes"] == {"sha256": WHEELS[1].sha256}


def test_the_four_tables_are_written_and_read_back(found: Found, tmp_path: Path) -> None:
    paths = recommender.write_tables(found[0], tmp_path)
    assert sorted(path.stem for path in paths) == ["excluded", "justifications", "proposals", "recommendations"]
    assert recommender.RECOMMENDATIONS.read(tmp_path).equals(found[0].table)


def test_a_recommended_stack_without_its_lock_is_refused(found: Found, tmp_path: Path) -> None:
    for solved in (None, found[1].model_copy(update={"stacks": found[1].stacks[:1]})):
        with pytest.raises(InputError):
            recommender.write_requirements(found[0], solved, tmp_path / "r.txt")
        with pytest.raises(InputError):
            recommender.write_pylock(found[0], solved, tmp_path / "p.toml")
    with pytest.raises(InputError):
        recommender.write_next_stacks(found[0], None, tmp_path / "n.json")
    assert list(tmp_path.iterdir()) == []


def test_what_is_measured_next_has_the_baseline_also_where_it_may_not_be_recommended(tmp_path: Path) -> None:
    session = making.plan(list(making.NUMPY.values()), ("Sort",))
    solved = making.stack_set(list(making.NUMPY.values()))
    seen = compare_session(making.observed(session, {}))
    made = making.recommended(seen, stacks=solved, exclude=("numpy==2.2.6",), propose=2)
    assert making.NAMES["2.2.6"] in made.excluded["stack"].to_list()
    chosen = stack_sets.read_stack_set(recommender.write_next_stacks(made, solved, tmp_path / "next.json"))
    assert [one.key for one in chosen.stacks] == [making.NUMPY["2.2.6"].key, *made.proposals["stack_key"]]
    assert len(chosen.stacks) == 3


def test_a_file_that_cannot_be_written_is_told(found: Found, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot write"):
        recommender.write_requirements(*found, tmp_path / "file" / "r.txt")
