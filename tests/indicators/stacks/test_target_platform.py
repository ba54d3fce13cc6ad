"""Which wheels fit which Python and platform."""

from __future__ import annotations

import pytest
from packaging.tags import Tag, parse_tag, sys_tags

from workbench.core.errors import ConfigError
from workbench.indicators.stacks.package_index import (
    build_target,
    find_uv_platform,
    this_platform,
    this_python_version,
)


def fits(tags: str, **asked: str) -> bool:
    return build_target(**asked).rank_tags(parse_tag(tags)) is not None


def test_without_a_wish_it_is_this_interpreter_and_machine() -> None:
    here = build_target()
    assert (here.python, here.platform, here.uv_platform) == (this_python_version(), this_platform(), None)
    assert here.rank_tags([next(iter(sys_tags()))]) == 0
    assert "--python-platform" not in here.list_uv_options()
    # So does its minor version alone.
    assert build_target(".".join(this_python_version().split(".")[:2])).python == this_python_version()


@pytest.mark.parametrize(
    ("tags", "there"),
    [
        ("cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64", True),
        ("cp39-abi3-manylinux2014_x86_64", True),
        ("py3-none-any", True),
        ("cp312-cp312-manylinux_2_34_x86_64", False),
        ("cp312-cp312-manylinux_2_28_aarch64", False),
        ("cp312-cp312-musllinux_1_2_x86_64", False),
        ("cp312-cp312-win_amd64", False),
    ],
)
def test_wheels_of_another_linux(tags: str, there: bool) -> None:
    assert fits(tags, python="3.12", platform="x86_64-manylinux_2_28") is there


def test_windows_and_mac_have_their_wheels_and_the_best_of_several_tags_counts() -> None:
    assert fits("cp311-cp311-win_amd64", python="3.11", platform="windows")
    assert fits("cp311-cp311-macosx_11_0_arm64", python="3.11", platform="aarch64-apple-darwin")
    assert not fits("cp311-cp311-macosx_14_0_arm64", python="3.11", platform="aarch64-apple-darwin")
    there = build_target("3.12", "x86_64-manylinux_2_28")
    own, pure = Tag("cp312", "cp312", "manylinux_2_28_x86_64"), Tag("py3", "none", "any")
    ranks = [there.rank_tags(tags) for tags in ([own], [pure, own], [pure])]
    assert ranks[0] == ranks[1] < ranks[2]  # type: ignore[operator]


def test_what_a_file_asks_of_python_and_uv_is_told() -> None:
    there = build_target("3.9.1", "x86_64-manylinux_2_28")
    asked = [None, "", ">=3.8", ">=3.10", "<3.9", "not a specifier"]
    assert [there.allows_python(text) for text in asked] == [True, True, True, False, False, True]
    options = build_target("3.9", "x86_64-manylinux_2_28").list_uv_options()
    assert options[2:] == ["--python-version", "3.9", "--python-platform", "x86_64-manylinux_2_28"]


@pytest.mark.parametrize("name", ["x86_64-manylinux_2_28", "aarch64-manylinux_2_31", "windows", "aarch64-apple-darwin"])
def test_a_platforms_name_leads_back_to_uvs(name: str) -> None:
    assert find_uv_platform(build_target("3.11", name).platform) == name


@pytest.mark.parametrize("asked", ["2.7", "3.7", "3", "3.x", "4.1", "3.11; rm"])
def test_an_unusable_python_and_an_unknown_platform_are_refused(asked: str) -> None:
    with pytest.raises(ConfigError, match="not a version of Python"):
        build_target(asked)
    with pytest.raises(ConfigError, match="x86_64-manylinux_2_28, aarch64"):
        build_target(None, "amiga")
