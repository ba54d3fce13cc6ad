"""What was read of a log is kept, found again by its content, bounded, and worth nothing when somebody changed it."""

from __future__ import annotations

import os
from pathlib import Path

import polars as pl
import pytest

from workbench.core.tables import Column, Table
from workbench.eventlog.sources import list_logs
from workbench.speedup.fleet.fleet_logs import CODE_PATTERNS, PACKAGE, FactsCache, hash_log, hash_reader_code

NUMBERS = Table("numbers", "Numbers.", ("n",), (Column("n", "int", "A number."),))
NAMES = Table("names", "Names.", (), (Column("name", "str", "A name."),))
TABLES = (NUMBERS, NAMES)
KEY, OTHER = "a" * 64, "b" * 64


@pytest.fixture
def cache(tmp_path: Path) -> FactsCache:
    return FactsCache(tmp_path / "cache")


def frames(n: int = 1) -> dict[Table, pl.DataFrame]:
    return {NUMBERS: NUMBERS.frame([{"n": n}]), NAMES: NAMES.frame([{"name": "x"}])}


def place(cache: FactsCache, key: str = KEY) -> Path:
    return cache.folder / hash_reader_code() / key[:2] / key


def log(folder: Path, content: bytes = b'{"Event":"x"}\n') -> Path:
    path = folder / "log"
    path.write_bytes(content)
    os.utime(path, (1000, 1000))
    return path


def test_what_was_stored_is_loaded(cache: FactsCache) -> None:
    assert cache.load_tables(KEY, TABLES) is None
    assert cache.store_tables(KEY, frames(7))
    loaded = cache.load_tables(KEY, TABLES)
    assert loaded is not None
    assert loaded["numbers"]["n"].to_list() == [7]
    assert cache.load_tables(OTHER, TABLES) is None


def test_a_second_store_leaves_the_first_whole(cache: FactsCache) -> None:
    assert cache.store_tables(KEY, frames(1))
    assert cache.store_tables(KEY, frames(2))
    loaded = cache.load_tables(KEY, TABLES)
    assert loaded is not None
    assert loaded["numbers"]["n"].to_list() == [1]
    assert [path.name for path in place(cache).parent.iterdir()] == [KEY]


@pytest.mark.parametrize("content", [b"", b"no parquet", b"PAR1 cut off"])
def test_a_damaged_entry_counts_as_absent_and_goes(content: bytes, cache: FactsCache) -> None:
    cache.store_tables(KEY, frames())
    (place(cache) / "numbers.parquet").write_bytes(content)
    assert cache.load_tables(KEY, TABLES) is None
    assert not place(cache).exists()
    assert cache.store_tables(KEY, frames(3))


def test_another_table_under_the_name_counts_as_absent(cache: FactsCache) -> None:
    cache.store_tables(KEY, frames())
    pl.DataFrame({"n": ["text"]}).write_parquet(place(cache) / "numbers.parquet")
    assert cache.load_tables(KEY, TABLES) is None


def test_an_entry_that_lacks_a_table_counts_as_absent(cache: FactsCache) -> None:
    cache.store_tables(KEY, {NUMBERS: frames()[NUMBERS]})
    assert cache.load_tables(KEY, TABLES) is None


@pytest.mark.parametrize("key", ["../../etc", "a" * 63, "A" * 64, ""])
def test_a_key_that_is_no_digest_reaches_no_file(key: str, cache: FactsCache) -> None:
    assert not cache.store_tables(key, frames())
    assert cache.load_tables(key, TABLES) is None


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of POSIX")
def test_a_folder_that_others_may_write_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    assert not FactsCache(folder).store_tables(KEY, frames())
    assert list(folder.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="links of POSIX")
def test_a_link_in_place_of_the_folder_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert not FactsCache(tmp_path / "link").store_tables(KEY, frames())


def test_the_longest_unused_go_first(tmp_path: Path) -> None:
    cache = FactsCache(tmp_path / "cache")
    keys = [letter * 64 for letter in "abc"]
    for age, key in enumerate(keys):
        cache.store_tables(key, frames())
        os.utime(place(cache, key), (1000 + age, 1000 + age))
    cache.load_tables(keys[0], TABLES)
    one_bytes = sum(file.stat().st_size for file in place(cache, keys[0]).iterdir())
    assert FactsCache(cache.folder, limit_bytes=2 * one_bytes).prune() == 1
    assert [cache.load_tables(key, TABLES) is not None for key in keys] == [True, False, True]


def test_what_a_killed_process_left_goes(cache: FactsCache) -> None:
    cache.store_tables(KEY, frames())
    left = place(cache).parent / ".part-left"
    left.mkdir()
    os.utime(left, (1000, 1000))
    assert cache.prune() == 1
    assert not left.exists()
    assert cache.load_tables(KEY, TABLES) is not None


def test_a_log_is_known_by_its_content_wherever_it_lies(tmp_path: Path, cache: FactsCache) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = log(tmp_path / "a"), log(tmp_path / "b")
    keys = [cache.hash_source(list_logs(str(path))[0]) for path in (first, second)]
    assert keys[0] == keys[1] == hash_log(list_logs(str(first))[0])
    second.write_bytes(b'{"Event":"y"}\n')
    assert cache.hash_source(list_logs(str(second))[0]) != keys[0]


def test_an_unchanged_file_is_not_hashed_again(
    tmp_path: Path, cache: FactsCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    from workbench.speedup.fleet import fleet_logs

    monkeypatch.setattr(fleet_logs, "SETTLED_NS", 0)
    source = list_logs(str(log(tmp_path)))[0]
    key = cache.hash_source(source)
    monkeypatch.setattr(fleet_logs, "hash_log", lambda _: pytest.fail("hashed again"))
    assert cache.hash_source(source) == key


def test_a_file_that_has_just_changed_is_hashed_again(tmp_path: Path, cache: FactsCache) -> None:
    path = tmp_path / "log"
    path.write_bytes(b'{"Event":"x"}\n')
    first = cache.hash_source(list_logs(str(path))[0])
    path.write_bytes(b'{"Event":"z"}\n')
    assert cache.hash_source(list_logs(str(path))[0]) != first


def test_a_rolled_log_is_known_by_all_its_files(tmp_path: Path, cache: FactsCache) -> None:
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    (folder / "events_1_app-1").write_bytes(b'{"Event":"x"}\n')
    first = cache.hash_source(list_logs(str(folder))[0])
    (folder / "events_2_app-1").write_bytes(b'{"Event":"x"}\n')
    assert cache.hash_source(list_logs(str(folder))[0]) != first


@pytest.mark.parametrize("pattern", CODE_PATTERNS)
def test_every_pattern_of_the_readers_code_matches_a_file(pattern: str) -> None:
    assert list(PACKAGE.glob(pattern))


def test_the_modules_that_make_the_cached_tables_are_in_the_readers_code() -> None:
    from workbench.core import tables as declared_tables
    from workbench.eventlog import reader
    from workbench.speedup import engines, tables
    from workbench.speedup.attribution import executions, time_pieces

    hashed = {path.resolve() for pattern in CODE_PATTERNS for path in PACKAGE.glob(pattern)}
    modules = (declared_tables, reader, tables, executions, time_pieces, engines)
    assert {Path(str(module.__file__)).resolve() for module in modules} <= hashed
