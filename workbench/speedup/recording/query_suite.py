"""Query suites of a recording, and the tables that they read."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.core.errors import ConfigError, InputError
from workbench.core.redaction import strip_user_info
from workbench.core.user_code import import_user_module

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
MAX_FILE_BYTES = 16 << 20
MAX_QUERIES = 5000
# Comments, texts and names may hold a semicolon; an unclosed one extends to the end.
_PIECE = re.compile(
    r"--[^\n]*|/\*.*?(?:\*/|\Z)|'(?:[^'\\]|\\.|'')*(?:'|\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\Z)|`[^`]*(?:`|\Z)|;", re.S
)
_NAMED = re.compile(r"^[ \t]*--[ \t]*name[ \t]*:[ \t]*(?P<name>\S.*?)[ \t\r]*$", re.M)
_STREAM_START = re.compile(
    r"^[ \t]*--[ \t]*start query (?P<number>\d+) in stream \d+ using template (?P<template>\S+?)(?:\.tpl)?"
    r"(?: and seed \d+)?[ \t\r]*$",
    re.M | re.I,
)
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?(?:\*/|\Z)", re.S)


@dataclass(frozen=True)
class Suite:
    """Queries by name, in order; `stream` is their order in a Power Run, the same if empty."""

    name: str
    queries: dict[str, str]
    stream: tuple[str, ...] = ()

    @property
    def sha256(self) -> str:
        """Digest of names and texts; equal for the same queries."""
        digest = hashlib.sha256()
        for name, text in self.queries.items():
            digest.update(f"{name}\0{text}\0".encode())
        return digest.hexdigest()

    def select(self, names: Sequence[str]) -> Suite:
        """The suite with some queries only, in its order; all of them without names.

        Raises
        ------
        ConfigError
            A name is not in the suite.
        """
        if unknown := [name for name in names if name not in self.queries]:
            raise ConfigError("no such query", where="--only", found=unknown[:10], allowed=list(self.queries))
        queries = {name: text for name, text in self.queries.items() if name in names or not names}
        return replace(self, queries=queries, stream=tuple(name for name in self.stream if name in queries))

    def format_sql(self) -> str:
        """The queries as a file that `parse_queries` reads."""
        return "\n".join(f"-- name: {name}\n{text}\n;\n" for name, text in self.queries.items())


def find_suite(queries: str) -> Suite:
    """The user's suite that `--queries` names.

    `queries`: A .sql file, or a .py file or module that defines `QUERIES: dict[str, str]`.
    """
    path = Path(queries)
    if path.suffix.lower() == ".py" or (re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", queries) and not path.exists()):
        return _build_suite(path.stem if path.suffix == ".py" else queries, load_module_queries(queries), queries)
    if path.suffix.lower() not in (".sql", ".txt", ""):
        raise ConfigError(
            "not a suite of queries",
            where="--queries",
            found=queries,
            allowed=["tpch", "tpcds", "FILE.sql", "FILE.py", "a module's name"],
        )
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError("too large for a file of queries", where=path, allowed=f"up to {MAX_FILE_BYTES >> 20} MiB")
        query_file = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the queries", where=path, found=str(error)[:200]) from error
    return _build_suite(path.stem, parse_queries(query_file, where=str(path)), queries)


def _build_suite(name: str, queries: dict[str, str], where: str) -> Suite:
    if not queries:
        raise InputError("no queries", where=where)
    if len(queries) > MAX_QUERIES:
        raise InputError("too many queries", where=where, found=len(queries), allowed=f"up to {MAX_QUERIES:,}")
    for query in queries:
        if not NAME.fullmatch(query):
            allowed = "letters, digits, _ . -, at most 80"
            raise InputError("not a name of a query", where=where, found=query[:120], allowed=allowed)
    return Suite(re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:80] or "queries", queries)


def parse_queries(text: str, *, where: str = "SQL") -> dict[str, str]:
    """Queries of a file: statements that end with a semicolon, named by comments before them.

    `-- name: x` names the next statement. In an NDS power-run stream, `-- start query N in stream S using template
    queryT.tpl` names the statements up to the next such line: queryT, or queryT_part1, queryT_part2 for several. Other
    statements are query1, query2, … by their position.

    >>> parse_queries("SELECT ';'; -- name: total\\nSELECT sum(x) FROM t")
    {'query1': "SELECT ';'", 'total': 'SELECT sum(x) FROM t'}
    >>> list(parse_queries("-- start query 1 in stream 0 using template query14.tpl\\nSELECT 1; SELECT 2;"))
    ['query14_part1', 'query14_part2']
    """
    return _parse_nds_stream(text, where) if _STREAM_START.search(text) else _parse_named_queries(text, where)


def _parse_nds_stream(text: str, where: str) -> dict[str, str]:
    """Split a stream of NDS queries into queries by template name; one with several statements becomes parts."""
    starts = list(_STREAM_START.finditer(text))
    queries: dict[str, str] = {}
    if list(iterate_statements(text[: starts[0].start()])):
        raise InputError("a statement before the first query of the stream", where=where)
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        inside = [sql for _, sql in iterate_statements(text[start.end() : end.start() if end else len(text)])]
        template = start["template"].rsplit("/", 1)[-1]
        if not inside:
            raise InputError("a query of the stream without a statement", where=where, found=template)
        for part, sql in enumerate(inside, 1):
            _add_query(queries, f"{template}_part{part}" if len(inside) > 1 else template, sql, where)
    return queries


def _parse_named_queries(text: str, where: str) -> dict[str, str]:
    """Split SQL text into queries, named by the comment before each statement, or else by its number."""
    queries: dict[str, str] = {}
    for number, (comments, sql) in enumerate(iterate_statements(text), 1):
        names = [match["name"] for match in _NAMED.finditer(comments)]
        if len(names) > 1:
            raise InputError("a name without a statement", where=where, found=names[0][:120])
        _add_query(queries, names[0] if names else f"query{number}", sql, where)
    return queries


def _add_query(queries: dict[str, str], name: str, sql: str, where: str) -> None:
    if name in queries:
        raise InputError("two queries of one name", where=where, found=name[:120])
    queries[name] = sql


def iterate_statements(text: str) -> Iterator[tuple[str, str]]:
    """Comments before each statement, and the statement with its inner comments; empty statements are skipped."""
    start = 0
    for end in [*(match.start() for match in _PIECE.finditer(text) if match[0] == ";"), len(text)]:
        piece = text[start:end]
        begin = _first_word_position(piece)
        if begin is not None:
            yield piece[:begin], piece[begin:].strip()
        start = end + 1


def _first_word_position(piece: str) -> int | None:
    position = 0
    while position < len(piece):
        if comment := _COMMENTS.match(piece, position):
            # A hint is part of a statement, but no statement starts with one.
            position = comment.end()
        elif piece[position].isspace():
            position += 1
        else:
            return position
    return None


def load_module_queries(module: str) -> dict[str, str]:
    """`QUERIES` of a module, given as a .py file or by its dotted name; its code is executed."""
    try:
        loaded = import_user_module(module)
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"[:300]
        raise InputError("cannot load the module of queries", where=module, found=reason) from error
    queries = getattr(loaded, "QUERIES", None)
    if not isinstance(queries, dict) or not all(isinstance(text, str) for pair in queries.items() for text in pair):
        allowed = "QUERIES: dict[str, str], name to SQL"
        raise InputError("the module has no queries", where=module, found=type(queries).__name__, allowed=allowed)
    return {name: text.strip().rstrip(";") for name, text in queries.items()}


@dataclass(frozen=True)
class QueryData:
    """Location of the tables, and the facts that a recording keeps of them.

    `scale`: Scale factor of TPC-H or TPC-DS; null for the user's own data.
    `fingerprint`: Digest of names and sizes of the files; null for a URL.
    """

    place: str
    source: str
    scale: float | None
    views: dict[str, str]
    fingerprint: str | None


def find_user_data(place: str, *, scale: float | None = None) -> QueryData:
    """The user's Parquet files and folders; each name, without .parquet, is a view."""
    if "://" in place and not place.startswith("file:"):
        return QueryData(place, strip_user_info(place), scale, {}, None)
    folder = Path(place.removeprefix("file://")).absolute()
    return find_local_data(folder, source="folder", scale=scale)


def find_local_data(folder: Path, *, source: str, scale: float | None) -> QueryData:
    """Tables in a local folder."""
    if not folder.is_dir():
        raise InputError("no such folder of tables", where="--data", found=str(folder))
    views: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")) or not (path.is_dir() or path.suffix == ".parquet"):
            continue
        name = path.name.removesuffix(".parquet")
        if name in views:
            raise InputError("two tables of the same name", where=folder, found=name)
        views[name] = str(path)
    if not views:
        allowed = "NAME.parquet files, or folders NAME of Parquet files"
        raise InputError("no tables in the folder", where="--data", found=str(folder), allowed=allowed)
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.parquet")):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{path.stat().st_size}\n".encode())
    return QueryData(str(folder), source, scale, views, digest.hexdigest())
