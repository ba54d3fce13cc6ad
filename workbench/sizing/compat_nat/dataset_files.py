"""Reads the toolkit's YAML with base files and variables, and dataset files of any format."""

from __future__ import annotations

import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from workbench.core.errors import ConfigError, InputError
from workbench.core.tables import read_parquet

if TYPE_CHECKING:
    import polars as pl

MAX_DATASET_BYTES = 256 << 20
_TRAILING = re.compile(r'("(?:[^"\\]|\\.)*")|,(?=\s*[\]}])')

# What zipfile raises for a damaged, an encrypted, and an oddly packed member.
_DAMAGE_ERRORS = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError, MemoryError)

DatasetFormat = Literal["json", "jsonl", "csv", "parquet", "xls"]


MAX_YAML_BYTES = 8 << 20
MAX_BASE_FILES = 16
_VARIABLE = re.compile(r"(?<!\\)\$\{(?P<name>[A-Za-z_]\w*)(?::?-(?P<default>[^}]*))?\}")


def read_dataset_rows(path: Path, kind: DatasetFormat) -> tuple[list[Row], list[str]]:
    """The rows of a file, and what was noticed."""
    notices: list[str] = []
    try:
        if path.stat().st_size > MAX_DATASET_BYTES:
            raise InputError("dataset too large", where=path, allowed=f"at most {MAX_DATASET_BYTES:,} bytes")
        if kind == "json":
            return _read_json_rows(path, notices), notices
        if kind == "jsonl":
            return list(_read_json_lines(path)), notices
        return (list(_read_first_sheet(path)) if kind == "xls" else _read_frame(path, kind).to_dicts()), notices
    except OSError as error:
        raise InputError("dataset cannot be read", where=path, found=error.strerror or str(error)[:200]) from error
    except UnicodeDecodeError as error:
        raise InputError("dataset is not UTF-8 text", where=path, found=f"byte {error.start}") from error
    except RecursionError as error:
        raise InputError("dataset is nested too deeply", where=path) from error


def _read_json_rows(path: Path, notices: list[str]) -> list[Row]:
    text = path.read_text(encoding="utf-8-sig")
    try:
        document = json.loads(text)
    except json.JSONDecodeError as first:
        # The documented samples have them; no JSON reader takes them.
        mended = _TRAILING.sub(lambda match: match[1] or "", text)
        try:
            document = json.loads(mended)
        except ValueError:
            where = f"{path}, line {first.lineno}, column {first.colno}"
            raise InputError("dataset is not JSON", where=where, found=first.msg) from first
        notices.append(f"{path.name}: trailing commas passed over")
    return _rows_from_document(document, path)


def _rows_from_document(document: Any, path: Path) -> list[Row]:
    """A list of objects, or an object of columns (lists, or objects by row)."""
    if isinstance(document, list):
        for number, row in enumerate(document):
            if not isinstance(row, dict):
                raise InputError("a row is no object", where=f"{path}, row {number}", found=type(row).__name__)
        return document
    columns = {} if not isinstance(document, dict) else document
    if not columns or not all(isinstance(column, list | dict) for column in columns.values()):
        raise InputError("dataset is no list of objects", where=path, found=type(document).__name__)
    by_row = {name: dict(enumerate(column)) if isinstance(column, list) else column for name, column in columns.items()}
    numbers = list(dict.fromkeys(number for column in by_row.values() for number in column))
    return [{name: column.get(number) for name, column in by_row.items()} for number in numbers]


def _read_json_lines(path: Path) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}, line {number}"
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InputError("a line is not JSON", where=where, found=str(error)[:120]) from error
            if not isinstance(row, dict):
                raise InputError("a line is no object", where=where, found=type(row).__name__)
            yield row


def _read_frame(path: Path, kind: DatasetFormat) -> pl.DataFrame:
    import polars as pl

    if kind == "parquet":
        return read_parquet(path)
    try:
        return pl.read_csv(path, glob=False, infer_schema_length=None)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        raise InputError(f"dataset is not a readable {kind} file", where=path, found=str(error)[:200]) from error


def _read_first_sheet(path: Path) -> Iterator[Row]:
    """The first sheet of an xlsx workbook, its first row the names."""
    import openpyxl

    try:
        with zipfile.ZipFile(path) as parts:
            if sum(part.file_size for part in parts.infolist()) > MAX_DATASET_BYTES:
                raise InputError("dataset too large once unpacked", where=path, allowed=f"{MAX_DATASET_BYTES:,} bytes")
        # Given a path, the library would leave a damaged file open.
        with path.open("rb") as file:
            book = openpyxl.load_workbook(file, read_only=True, data_only=True)
            table = list(book.worksheets[0].iter_rows(values_only=True))
    # Damaged workbooks make the library fail in many ways: parsers', zip's, and look-ups of parts that are not there.
    except (*_DAMAGE_ERRORS, SyntaxError, LookupError, ValueError, TypeError, AttributeError) as error:
        do = "save it as .xlsx (older .xls files cannot be read)"
        raise InputError("dataset is not a readable xlsx file", where=path, found=str(error)[:200], do=do) from error
    names = table[0] if table else ()
    for row in table[1:]:
        cells = {str(name): cell for name, cell in zip(names, row, strict=False) if name is not None}
        if any(cell is not None for cell in cells.values()):
            yield cells


def load_nat_yaml(path: str | Path) -> dict[str, Any]:
    """Read the YAML as the toolkit does.

    `${NAME}` and `${NAME:-default}` are put in from the environment (nothing for a name that is not set); the file that
    `base` names comes below, mappings merged.
    """
    return _load_with_bases(Path(path), ())


def _load_with_bases(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    path = path.resolve()
    if path in above or len(above) >= MAX_BASE_FILES:
        raise ConfigError("base files lead back to themselves", where=above[0], found=path)
    document = _parse_yaml_file(path)
    base = document.pop("base", None)
    if base is None:
        return document
    if not isinstance(base, str):
        raise ConfigError("not a file name", where=f"{path}, base", found=base)
    return _merge_mappings(_load_with_bases(path.parent / base, (*above, path)), document)


def _parse_yaml_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        if path.stat().st_size > MAX_YAML_BYTES:
            raise InputError("config file too large", where=path, allowed=f"at most {MAX_YAML_BYTES:,} bytes")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError("config file cannot be read", where=path, found=error.strerror) from error
    except UnicodeDecodeError as error:
        raise InputError("config file is not UTF-8 text", where=path, found=f"byte {error.start}") from error
    try:
        document = yaml.safe_load(_VARIABLE.sub(_resolve_variable, text))
    except (yaml.YAMLError, RecursionError) as error:
        # The error's own text would quote the line, in which a variable may have been put.
        mark = getattr(error, "problem_mark", None)
        problem = getattr(error, "problem", None)
        raise InputError("not YAML", where=f"{path}, line {mark.line + 1}" if mark else path, found=problem) from None
    except ValueError as error:
        # A date such as 2026-02-30, a number of thousands of digits: what looks like a value and is none.
        raise InputError("not YAML", where=path, found=str(error)[:120]) from None
    if not isinstance(document, dict):
        raise ConfigError("config file is no mapping", where=path, found=type(document).__name__)
    return document


def _resolve_variable(match: re.Match[str]) -> str:
    return os.environ.get(match["name"]) or match["default"] or ""


def _merge_mappings(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merge_mappings(result[key], value) if both else value
    return result
