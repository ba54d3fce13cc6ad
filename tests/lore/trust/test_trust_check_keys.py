"""The key that signs dumps: private, whole, made once."""

from __future__ import annotations

import multiprocessing
import os
import stat
from pathlib import Path

import pytest

from workbench.core.errors import ConfigError
from workbench.lore.trust import trust_check

pytestmark = pytest.mark.usefixtures("config_home")
posix = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="modes and owners of files are POSIX's")


def refusal() -> ConfigError:
    with pytest.raises(ConfigError) as error:
        trust_check.read_or_create_key()
    return error.value


def test_it_is_made_on_first_use_and_is_the_same_after(config_home: Path) -> None:
    assert trust_check.read_existing_key() is None
    key = trust_check.read_or_create_key()
    assert (len(key), key) == (32, trust_check.read_or_create_key())
    assert [path.name for path in (config_home / "workbench").iterdir()] == ["lore.key"]


@posix
def test_only_its_owner_may_read_it_whatever_the_umask(config_home: Path) -> None:
    before = os.umask(0)
    try:
        trust_check.read_or_create_key()
    finally:
        os.umask(before)
    assert stat.S_IMODE((config_home / "workbench" / "lore.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((config_home / "workbench").stat().st_mode) == 0o700


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_one_that_others_may_read_or_write_is_refused(mode: int) -> None:
    trust_check.read_or_create_key()
    trust_check.find_key_file().chmod(mode)
    error = refusal()
    assert error.what == "the key of dumps is open to other users"
    assert error.facts["where"] == trust_check.find_key_file()
    assert error.exit_code == 2


@posix
def test_another_users_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    trust_check.read_or_create_key()
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert refusal().what == "the key of dumps is another user's"


def test_a_link_is_refused(tmp_path: Path) -> None:
    trust_check.read_or_create_key()
    trust_check.find_key_file().rename(tmp_path / "key")
    trust_check.find_key_file().symlink_to(tmp_path / "key")
    assert refusal().what == "the key of dumps is a link"


def test_a_dangling_link_is_not_followed_when_it_is_made(tmp_path: Path) -> None:
    trust_check.find_key_file().parent.mkdir(parents=True)
    trust_check.find_key_file().symlink_to(tmp_path / "elsewhere")
    refusal()
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("size", [0, 31, 33])
def test_a_damaged_one_is_refused(size: int) -> None:
    trust_check.read_or_create_key()
    trust_check.find_key_file().write_bytes(bytes(size))
    assert refusal().what == "the key of dumps is damaged"


def test_a_folder_in_its_place_is_refused() -> None:
    trust_check.find_key_file().mkdir(parents=True)
    assert "key of dumps" in refusal().what


def test_a_place_that_cannot_be_written_is_said(config_home: Path) -> None:
    (config_home / "workbench").write_text("in the way")
    assert "key of dumps" in refusal().what


def test_a_relative_place_counts_as_not_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    assert trust_check.find_key_file() == tmp_path / ".config" / "workbench" / "lore.key"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert trust_check.find_key_file() == tmp_path / ".config" / "workbench" / "lore.key"


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("no home")

    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", no_home)
    assert "XDG_CONFIG_HOME" in str(refusal())


def test_a_file_system_without_hard_links_has_a_key_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: Path, target: Path) -> None:
        raise PermissionError(1, "not permitted")

    monkeypatch.setattr(os, "link", no_links)
    assert trust_check.read_or_create_key() == trust_check.read_or_create_key()


def made_at_once(barrier: object) -> bytes:
    barrier.wait()  # type: ignore[attr-defined]
    return trust_check.read_or_create_key()


def test_two_processes_at_once_make_one_key() -> None:
    context = multiprocessing.get_context("fork" if hasattr(os, "fork") else "spawn")
    with context.Manager() as manager, context.Pool(4) as pool:
        found = pool.map(made_at_once, [manager.Barrier(4)] * 4, chunksize=1)
    assert len(set(found)) == 1
    assert found[0] == trust_check.read_or_create_key()
    assert len(list(trust_check.find_key_file().parent.iterdir())) == 1
