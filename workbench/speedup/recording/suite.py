"""Where the queries come from: TPC-H, a file of SQL, an NDS power-run stream, or a Python module."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ConfigError, InputError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
MAX_FILE_BYTES = 16 << 20
MAX_QUERIES = 5000
# What a semicolon may stand in without ending a statement. An unclosed comment or text reaches to the end.
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
    """Queries by name, in their order."""

    name: str
    queries: dict[str, str]

    @property
    def sha256(self) -> str:
        """Digest of names and texts: two recordings with the same one ran the same queries."""
        digest = hashlib.sha256()
        for name, text in self.queries.items():
            digest.update(f"{name}\0{text}\0".encode())
        return digest.hexdigest()

    def sql(self) -> str:
        """All of them as a file that `from_sql` reads back."""
        return "\n".join(f"-- name: {name}\n{text}\n;\n" for name, text in self.queries.items())


def find(queries: str, *, scale: float | None) -> Suite:
    """The suite that `--queries` names.

    Parameters
    ----------
    queries
        "tpch"; a file ending in .sql; a file ending in .py or a module's name, with `QUERIES: dict[str, str]` in it.
    scale
        TPC-H scale factor, which a threshold of q11 depends on.

    Raises
    ------
    InputError
        The file cannot be read, a name is used twice or is none, or there is no query in it.
    ConfigError
        It is none of the three.
    """
    if queries == "tpch":
        from workbench.speedup.recording import tpch

        return Suite("tpch", tpch.queries(scale))
    path = Path(queries)
    if path.suffix.lower() == ".py" or (re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", queries) and not path.exists()):
        from workbench.speedup.recording.modules import queries_of

        return _suite(path.stem if path.suffix == ".py" else queries, queries_of(queries), queries)
    if path.suffix.lower() not in (".sql", ".txt", ""):
        raise ConfigError(
            "not a suite of queries",
            where="--queries",
            found=queries,
            allowed=["tpch", "FILE.sql", "FILE.py", "a module's name"],
        )
    return _suite(path.stem, from_sql(_text(path), where=str(path)), queries)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError("too large for a file of queries", where=path, allowed=f"up to {MAX_FILE_BYTES >> 20} MiB")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("cannot read the queries", where=path, found=str(error)[:200]) from error


def _suite(name: str, queries: dict[str, str], where: str) -> Suite:
    if not queries:
        raise InputError("no query in it", where=where)
    if len(queries) > MAX_QUERIES:
        raise InputError("too many queries", where=where, found=len(queries), allowed=f"up to {MAX_QUERIES:,}")
    for query in queries:
        if not NAME.fullmatch(query):
            allowed = "letters, digits, _ . -, at most 80"
            raise InputError("a query cannot have this name", where=where, found=query[:120], allowed=allowed)
    return Suite(re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:80] or "queries", queries)


def from_sql(text: str, *, where: str = "SQL") -> dict[str, str]:
    """Queries of a file: statements that end with a semicolon, named by comments before them.

    `-- name: x` names the next statement. In an NDS power-run stream, `-- start query N in stream S using template
    queryT.tpl` names those up to the next such line: queryT, or queryT_part1, queryT_part2 where there are several.
    Other statements are query1, query2, … by their place.

    Raises
    ------
    InputError
        A name is given twice, or to no statement.

    Examples
    --------
    >>> from_sql("SELECT ';'; -- name: total\\nSELECT sum(x) FROM t")
    {'query1': "SELECT ';'", 'total': 'SELECT sum(x) FROM t'}
    >>> list(from_sql("-- start query 1 in stream 0 using template query14.tpl\\nSELECT 1; SELECT 2;"))
    ['query14_part1', 'query14_part2']
    """
    return _stream(text, where) if _STREAM_START.search(text) else _named(text, where)


def _stream(text: str, where: str) -> dict[str, str]:
    starts = list(_STREAM_START.finditer(text))
    found: dict[str, str] = {}
    if list(statements(text[: starts[0].start()])):
        raise InputError("a statement before the first query of the stream", where=where)
    for start, end in zip(starts, [*starts[1:], None], strict=True):
        inside = [sql for _, sql in statements(text[start.end() : end.start() if end else len(text)])]
        template = start["template"].rsplit("/", 1)[-1]
        if not inside:
            raise InputError("a query of the stream without a statement", where=where, found=template)
        for part, sql in enumerate(inside, 1):
            _add(found, f"{template}_part{part}" if len(inside) > 1 else template, sql, where)
    return found


def _named(text: str, where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, (comments, sql) in enumerate(statements(text), 1):
        names = [match["name"] for match in _NAMED.finditer(comments)]
        if len(names) > 1:
            raise InputError("a name without a statement", where=where, found=names[0][:120])
        _add(found, names[0] if names else f"query{number}", sql, where)
    return found


def _add(found: dict[str, str], name: str, sql: str, where: str) -> None:
    if name in found:
        raise InputError("two queries of one name", where=where, found=name[:120])
    found[name] = sql


def statements(text: str) -> Iterator[tuple[str, str]]:
    """The comments before each statement, and the statement with the comments inside it; empty ones are left out."""
    start = 0
    for end in [*(match.start() for match in _PIECE.finditer(text) if match[0] == ";"), len(text)]:
        piece = text[start:end]
        begin = _first_word(piece)
        if begin is not None:
            yield piece[:begin], piece[begin:].strip()
        start = end + 1


def _first_word(piece: str) -> int | None:
    position = 0
    while position < len(piece):
        if comment := _COMMENTS.match(piece, position):
            # A hint is part of a statement, but none begins with one.
            position = comment.end()
        elif piece[position].isspace():
            position += 1
        else:
            return position
    return None
