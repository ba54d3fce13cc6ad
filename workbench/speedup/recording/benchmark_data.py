"""Benchmarks that can be recorded without files of one's own: their queries, and tables generated into the cache."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import venv
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from importlib import metadata
from pathlib import Path

from workbench.core.child_process import run_command
from workbench.core.errors import ConfigError, MissingToolError
from workbench.core.files import cache_folder
from workbench.speedup.recording import tpcds_generator
from workbench.speedup.recording.query_suite import QueryData, Suite, find_local_data, parse_queries

# 1,000 is about 350 GB.
MAX_SCALE = 1000.0
TPCH_GENERATOR = "tpchgen-cli"
TPCH_TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
TPCH_QUERIES = Path(__file__).with_name("tpch_queries.sql")
TPCDS_TABLES = (
    "call_center", "catalog_page", "catalog_returns", "catalog_sales", "customer", "customer_address",
    "customer_demographics", "date_dim", "household_demographics", "income_band", "inventory", "item", "promotion",
    "reason", "ship_mode", "store", "store_returns", "store_sales", "time_dim", "warehouse", "web_page",
    "web_returns", "web_sales", "web_site",
)  # fmt: skip
# Order of the queries in stream 0, that of a Power Run, as the specifications of the benchmarks give it.
TPCH_STREAM = "14 2 9 20 6 17 18 8 21 13 3 22 16 4 11 15 1 10 19 5 7 12"
TPCDS_STREAM = (
    "96 7 75 44 39 80 32 19 25 78 86 1 91 21 43 27 94 45 58 64 36 33 46 62 16 10 63 69 60 59 37 98 85 70 67 28 81 97 "
    "66 90 17 47 95 92 3 51 35 49 9 31 11 93 29 38 22 89 15 6 52 50 42 41 8 12 20 88 82 23 14 57 65 71 34 48 30 74 87 "
    "77 73 84 54 55 56 2 26 40 72 53 79 18 13 24 4 99 68 83 61 5 76"
)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Benchmark:
    """A benchmark: the tables that it needs, and how its queries and data are made.

    `build_suite`: Queries for a scale factor; with `dry` nothing is downloaded, and queries may lack their texts.
    """

    tables: tuple[str, ...]
    source: Callable[[], str]
    build_suite: Callable[[float | None, bool, Say], Suite]
    get_data: Callable[[float, Say], QueryData]

    def list_missing_tables(self, data: QueryData) -> list[str]:
        """Missing tables; empty for a URL, which only Spark can list."""
        return [table for table in self.tables if table not in data.views] if data.views else []


def build_tpch_queries(scale: float | None = 1.0) -> dict[str, str]:
    """Name to text of the 22 TPC-H queries, q1 to q22.

    `scale`: TPC-H scale factor of the data: the threshold of q11 shrinks with it, as the benchmark says. 1 when null.

    >>> len(build_tpch_queries()), "0.00001 FROM stock" in build_tpch_queries(10)["q11"]
    (22, True)
    """
    fraction = format((Decimal("0.0001") / Decimal(str(scale or 1.0))).normalize(), "f")
    texts = parse_queries(TPCH_QUERIES.read_text(encoding="utf-8"), where=TPCH_QUERIES.name)
    return {name: text.replace("{fraction}", fraction) for name, text in texts.items()}


def _build_tpch_suite(scale: float | None, dry: bool, say: Say) -> Suite:
    del dry, say
    return Suite("tpch", build_tpch_queries(scale), tuple(f"q{number}" for number in TPCH_STREAM.split()))


def _get_tpch_data(scale: float, say: Say) -> QueryData:
    """TPC-H data at this scale from the cache, generated if missing (about 350 MB for scale 1)."""
    source = _name_tpch_source()
    folder = cache_folder() / "tpch" / f"sf{_check_scale(scale):g}-{source.split()[1]}"
    if not folder.is_dir():
        say(f"generating TPC-H data at scale {scale:g} (once; kept in the cache)")
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
        tool = shutil.which(TPCH_GENERATOR, path=path)
        if tool is None:
            do = f"pip install --force-reinstall {TPCH_GENERATOR}"
            raise MissingToolError(f"the command {TPCH_GENERATOR} is missing", do=do)
        _make_once(
            folder,
            lambda fresh: run_command(
                [tool, "parquet", "-s", f"{scale:g}", "--output-dir", str(fresh)], must_succeed=True
            ),
        )
    return find_local_data(folder, source=source, scale=scale)


def _name_tpch_source() -> str:
    try:
        return f"{TPCH_GENERATOR} {metadata.version(TPCH_GENERATOR)}"
    except metadata.PackageNotFoundError as error:
        do = "pip install 'accelerated-workbench[spark]', or give your own Parquet files with --data DIR"
        raise MissingToolError(f"{TPCH_GENERATOR} is not installed", do=do) from error


def _build_tpcds_suite(scale: float | None, dry: bool, say: Say) -> Suite:
    del scale
    stream = tuple(f"query{number}" for number in TPCDS_STREAM.split())
    path = cache_folder() / "tpcds" / f"queries-{_name_tpcds_version('sqlglot')}.json"
    if not path.is_file():
        if dry:
            return Suite("tpcds", dict.fromkeys(sorted(stream, key=lambda name: int(name[5:])), ""), stream)
        _make_once(path, lambda fresh: _run_tpcds_generator(["queries", str(fresh)], say))
    return Suite("tpcds", json.loads(path.read_text(encoding="utf-8")), stream)


def _get_tpcds_data(scale: float, say: Say) -> QueryData:
    """TPC-DS data at this scale from the cache, generated if missing (about 370 MB and a minute for scale 1)."""
    folder = cache_folder() / "tpcds" / f"sf{_check_scale(scale):g}-{_name_tpcds_version('duckdb')}"
    if not folder.is_dir():
        say(f"generating TPC-DS data at scale {scale:g} (once; kept in the cache)")
        _make_once(folder, lambda fresh: _run_tpcds_generator(["tables", f"{scale:g}", str(fresh)], say))
    return find_local_data(folder, source=_name_tpcds_source(), scale=scale)


def _name_tpcds_version(package: str) -> str:
    return dict(text.split("==") for text in tpcds_generator.PACKAGES)[package]


def _name_tpcds_source() -> str:
    return f"dsdgen of DuckDB {_name_tpcds_version('duckdb')}"


def _run_tpcds_generator(arguments: list[str], say: Say) -> None:
    """Run the generator in an environment of its own, made in the cache when it is missing."""
    packages = tpcds_generator.PACKAGES
    version = "-".join(text.split("==")[1] for text in packages)
    folder = cache_folder() / "tpcds" / f"environment-{version}-{sys.implementation.cache_tag}"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not (folder / "complete").is_file():
        say(f"making an environment with {' and '.join(packages)} (once; kept in the cache)")
        # Scripts of an environment hold its path, so it is made in place; a part of one lacks the last file.
        venv.create(folder, clear=True, with_pip=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        do = "check that pip reaches a package index, or give queries and tables with --queries FILE.sql --data DIR"
        run_command([*pip, *packages], must_succeed=True, do=do)
        (folder / "complete").touch()
    run_command([python, "-I", tpcds_generator.__file__, *arguments], must_succeed=True)


def _make_once(target: Path, make: Callable[[Path], object]) -> None:
    """Make a file or folder beside its place and rename it, so that parallel recordings do not see a part of it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as fresh:
        make(Path(fresh) / "made")
        try:
            (Path(fresh) / "made").rename(target)
        except OSError:
            if not target.exists():
                raise


def _check_scale(scale: float) -> float:
    if not 0 < scale <= MAX_SCALE:
        raise ConfigError("not a scale factor", where="--scale", found=scale, allowed=f"above 0, at most {MAX_SCALE:g}")
    return scale


BENCHMARKS = {
    "tpch": Benchmark(TPCH_TABLES, _name_tpch_source, _build_tpch_suite, _get_tpch_data),
    "tpcds": Benchmark(TPCDS_TABLES, _name_tpcds_source, _build_tpcds_suite, _get_tpcds_data),
}
