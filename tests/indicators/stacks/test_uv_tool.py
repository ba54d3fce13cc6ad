"""The index that is configured: whose setting wins, and that no password is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.core.errors import ConfigError
from workbench.indicators.stacks.uv_tool import DEFAULT_INDEX, Sources, load_sources

UV = "https://uv.example/simple"
PIP = "https://pip.example/simple"


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """The environment of a user without any setting."""
    return {"HOME": str(tmp_path), "PIP_CONFIG_FILE": "/dev/null", "UV_CONFIG_FILE": str(tmp_path / "uv.toml")}


def test_uvs_variable_wins_over_pips_and_uvs_file_over_pips_variable(home: dict[str, str]) -> None:
    found = load_sources(home)
    assert (found.indexes, found.find_links, found.told_by) == ((DEFAULT_INDEX,), (), "the default")
    found = load_sources(home | {"PIP_INDEX_URL": PIP, "UV_INDEX_URL": UV})
    assert (found.indexes, found.told_by) == ((UV,), "UV_INDEX_URL")
    newer = load_sources(home | {"UV_INDEX_URL": PIP, "UV_DEFAULT_INDEX": UV})
    assert (newer.indexes, newer.told_by) == ((UV,), "UV_DEFAULT_INDEX")
    Path(home["UV_CONFIG_FILE"]).write_text(f'[pip]\nindex-url = "{UV}"\n')
    assert load_sources(home | {"PIP_INDEX_URL": PIP}).indexes == (UV,)
    assert load_sources(home | {"PIP_INDEX_URL": PIP, "UV_NO_CONFIG": "1"}).indexes == (PIP,)


def test_further_indexes_of_a_variable_or_uvs_file_are_asked_first_and_uv_is_told_the_same(
    home: dict[str, str],
) -> None:
    found = load_sources(home | {"UV_DEFAULT_INDEX": UV, "UV_INDEX": f"mine={PIP}?a=b https://b.example"})
    assert found.indexes == (f"{PIP}?a=b", "https://b.example", UV)
    Path(home["UV_CONFIG_FILE"]).write_text(
        '[[index]]\nurl = "https://extra.example/simple"\n'
        '[[index]]\nurl = "https://pinned.example"\nexplicit = true\n'
        f'[[index]]\nurl = "{UV}"\ndefault = true\n'
    )
    assert load_sources(home).indexes == ("https://extra.example/simple", UV)
    told = Sources((PIP, UV), ("file:///wheels",), "unsafe-best-match").build_environment()
    indexes = {"UV_DEFAULT_INDEX": UV, "UV_INDEX": PIP}
    assert told == indexes | {"UV_FIND_LINKS": "file:///wheels", "UV_INDEX_STRATEGY": "unsafe-best-match"}


def test_pips_file_counts_when_uv_has_no_setting(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "pip.conf").write_text(f"[global]\nindex-url = {PIP}\nextra-index-url =\n  {UV}\n")
    found = load_sources(home | {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")})
    assert (found.indexes, found.told_by) == ((UV, PIP), "pip's configuration")


def test_a_named_index_gets_the_login_that_uv_keeps_for_it(home: dict[str, str]) -> None:
    login = {"UV_INDEX_MY_OWN_USERNAME": "ann", "UV_INDEX_MY_OWN_PASSWORD": "p@ss"}
    found = load_sources(home | login | {"UV_INDEX": f"my-own={PIP} other={UV} my-own=https://bob:x@b.example"})
    assert found.indexes[:3] == ("https://ann:p%40ss@pip.example/simple", UV, "https://bob:x@b.example")
    Path(home["UV_CONFIG_FILE"]).write_text(f'[[index]]\nname = "my-own"\nurl = "{UV}"\ndefault = true\n')
    assert load_sources(home | login).indexes == ("https://ann:p%40ss@uv.example/simple",)


def test_local_folders_become_addresses_and_absent_ones_are_left_out(home: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "wheels here").mkdir()
    links = {"UV_FIND_LINKS": f"{tmp_path / 'absent'},{tmp_path.as_uri()}"}
    found = load_sources(home | links | {"UV_DEFAULT_INDEX": str(tmp_path)})
    assert (found.indexes, found.find_links) == ((tmp_path.as_uri(),), (tmp_path.as_uri(),))


def test_no_index_at_all_and_an_unknown_strategy(home: dict[str, str]) -> None:
    found = load_sources(home | {"UV_NO_INDEX": "1", "UV_DEFAULT_INDEX": UV})
    assert (found.indexes, found.shown) == ((), "no index")
    assert "UV_DEFAULT_INDEX" not in found.build_environment()
    with pytest.raises(ConfigError, match="unknown index strategy"):
        load_sources(home | {"UV_INDEX_STRATEGY": "best"})


def test_a_password_is_in_no_text_of_it() -> None:
    found = Sources(("https://ann:s3cret@uv.example/simple",), ("https://bob:s3cret@links.example",))
    assert found.shown == "https://uv.example/simple"
    assert "s3cret" not in repr(found) + found.shown


@pytest.mark.parametrize("text", ["[global\nindex-url = https://a:s3cret@x", "index-url = https://a:s3cret@x\n"])
def test_an_unreadable_configuration_is_named_and_not_quoted(home: dict[str, str], tmp_path: Path, text: str) -> None:
    (tmp_path / "pip.conf").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_sources(home | {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")})
    assert "pip.conf" in str(caught.value)
    assert "s3cret" not in str(caught.value)
