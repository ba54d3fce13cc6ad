"""Versions between two ends, and their stacks, by the real uv on an index of our own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from tests.indicators.stacks.making import Made, local_index
from workbench.core.errors import ConfigError, InputError
from workbench.indicators.stacks import version_ranges
from workbench.indicators.stacks.uv_tool import Sources
from workbench.indicators.stacks.version_ranges import (
    find_version_range,
    parse_fixed_requirements,
    parse_package,
    parse_range,
    solve_version_range,
)

WHEELS = [
    *(Made("one", version) for version in ("0.9", "1.0", "2.0rc1", "3.0")),
    *(Made("one", version, ("aaa<2",)) for version in ("1.9", "1.10")),
    Made("one", "2.0", yanked=True),
    Made("one", "2.1", ("aaa>=2",)),
    Made("one", "2.2", ("missing",)),
    Made("one", "2.3", tag="cp38-cp38-win_amd64"),
    *(Made("aaa", version) for version in ("1.0", "2.0")),
]


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    found = Sources((local_index(tmp_path / "index", WHEELS).as_uri(),))
    monkeypatch.setenv("UV_DEFAULT_INDEX", found.indexes[-1])
    return found


def versions(text: str, sources: Sources, **more: Any) -> tuple[str, ...]:
    return find_version_range("one", parse_range(text), sources=sources, **more).versions


def test_final_versions_with_a_wheel_are_taken_in_their_order(sources: Sources) -> None:
    found = find_version_range("One", parse_range("1.0..3.0"), sources=sources)
    assert found.versions == ("1.0", "1.9", "1.10", "2.1", "2.2", "3.0")
    assert (found.package, found.yanked) == ("one", ("2.0",))


def test_ends_count_as_they_are(sources: Sources) -> None:
    assert versions("2.0rc1..2.1", sources) == ("2.0rc1", "2.1")
    assert versions("1.10..2.0", sources) == ("1.10", "2.0")
    for text in ("2.0rc1..3.0", "1.10..2.0"):
        found = find_version_range("one", parse_range(text), sources=sources)
        solved = {stack.name for stack in solve_version_range(found, max_download_bytes=10**9, sources=sources).stacks}
        assert {f"one {found.versions[0]}", f"one {found.versions[-1]}"} <= solved
    # Named ones are taken in place of all.
    found = find_version_range("one", parse_range("1.0..3.0"), [Version("2.0"), Version("2.0rc1")], sources)
    assert (found.versions, found.yanked) == (("1.0", "2.0rc1", "2.0", "3.0"), ())
    # As the index writes it.
    assert versions("1.0.0..1.9", sources) == ("1.0", "1.9")


@pytest.mark.parametrize(
    ("text", "named", "told"),
    [
        ("1.0..2.3", [], "no wheel of this version of one"),
        ("1.0..2.4", [], "0.9 to 3.0"),
        ("1.0..3.0", ["0.9"], "a version outside the range"),
        ("1.0..3.0", ["1.5"], "no wheel of this version of one"),
    ],
)
def test_versions_that_are_not_there_are_refused(sources: Sources, text: str, named: list[str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        versions(text, sources, named=map(Version, named))


def test_too_many_versions_and_unknown_packages_are_refused(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_ranges, "MAX_VERSIONS", 3)
    assert len(versions("1.0..1.10", sources)) == 3
    with pytest.raises(ConfigError, match="too many versions: 6"):
        versions("1.0..3.0", sources)
    with pytest.raises(InputError, match="no such package"):
        find_version_range("nothing", parse_range("1.0..2.0"), sources=sources)


@pytest.mark.parametrize(
    ("parse", "texts"),
    [
        (parse_range, ["1.0", "1.0..", "..2.0", "a..b", "2.0..1.0", "1.0..1.0.0", ""]),
        (parse_package, ["one==1.0", "one @ https://somewhere.example/one.whl", "one; python_version>'3'", "-r"]),
    ],
)
def test_a_range_has_two_versions_in_order_and_a_package_is_a_name(
    parse: Callable[[str], object], texts: list[str]
) -> None:
    for text in texts:
        with pytest.raises(ConfigError):
            parse(text)


def test_other_requirements_are_of_other_packages() -> None:
    assert parse_fixed_requirements(["aaa<2"], "one") == ("aaa<2",)
    with pytest.raises(ConfigError, match="for other packages"):
        parse_fixed_requirements(["One<2"], "one")


def test_each_version_has_a_stack_or_a_reason(sources: Sources) -> None:
    found = find_version_range("one", parse_range("1.0..3.0"), sources=sources)
    solved = solve_version_range(found, max_download_bytes=10**9, sources=sources)
    aaa = {stack.name: stack.versions.get("aaa") for stack in solved.stacks}
    assert aaa == {"one 1.0": None, "one 1.9": "1.0", "one 1.10": "1.0", "one 2.1": "2.0", "one 3.0": None}
    (rejected,) = solved.rejected
    assert rejected.point == "one 2.2"
    assert "missing" in rejected.reason
    solved = solve_version_range(found, ["aaa<2"], max_download_bytes=10**9, sources=sources)
    assert [one.point for one in solved.rejected] == ["one 2.1", "one 2.2"]
    assert {stack.versions["aaa"] for stack in solved.stacks} == {"1.0"}
