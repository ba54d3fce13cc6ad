"""Evaluation dataset of the toolkit's YAML: filtered rows, and items for each level.

The keys are those of `eval.general.dataset`; rows become items as NeMo Agent Toolkit 1.9.0 makes them (filters,
duplicate ids, key names, copies with `_rep1` on their ids). Deliberately otherwise: the rows are shuffled, for the
first rows of a file are seldom a fair mix; rows without a question go before a level is filled; trailing commas pass.
"""

from __future__ import annotations

import fnmatch
import json
import math
import os
import random
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

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
MAX_ROWS = 1_000_000
MAX_ITEMS = 1_000_000
_REPEATED = re.compile(r"_rep\d+$")
Row = dict[str, Any]


def read_dataset_rows(path: Path, kind: DatasetFormat) -> tuple[list[Row], list[str]]:
    """The rows of a file, and what was noticed."""
    notices: list[str] = []
    try:
        if path.stat().st_size > MAX_DATASET_BYTES:
            raise InputError("dataset too large", where=path, allowed=f"at most {MAX_DATASET_BYTES:,} bytes")
        if kind == "json":
            # Read the rows of a JSON dataset, also one with trailing commas, which is noted.
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
            return _rows_from_document(document, path), notices
        if kind == "jsonl":
            return list(_read_json_lines(path)), notices
        return (list(_read_first_sheet(path)) if kind == "xls" else _read_frame(path, kind).to_dicts()), notices
    except OSError as error:
        raise InputError("dataset cannot be read", where=path, found=error.strerror or str(error)[:200]) from error
    except UnicodeDecodeError as error:
        raise InputError("dataset is not UTF-8 text", where=path, found=f"byte {error.start}") from error
    except RecursionError as error:
        raise InputError("dataset is nested too deeply", where=path) from error


def _rows_from_document(document: Any, path: Path) -> list[Row]:
    """Rows of a JSON dataset: a list of objects, or an object of columns (each a list, or an object by row number)."""
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
    """Load a YAML file merged over its base files; `above` are the files that led to this one."""
    path = path.resolve()
    if path in above or len(above) >= MAX_BASE_FILES:
        raise ConfigError("base files lead back to themselves", where=above[0], found=path)
    # Read a YAML mapping with environment variables put in; messages never quote the text, which may hold secrets.
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
        filled = _VARIABLE.sub(lambda match: os.environ.get(match["name"]) or match["default"] or "", text)
        document = yaml.safe_load(filled)
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
    base = document.pop("base", None)
    if base is None:
        return document
    if not isinstance(base, str):
        raise ConfigError("not a file name", where=f"{path}, base", found=base)
    return _merge_mappings(_load_with_bases(path.parent / base, (*above, path)), document)


def _merge_mappings(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    result = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = _merge_mappings(result[key], value) if both else value
    return result


class _StrictModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class FilterEntry(_StrictModel):
    """Column to the values that are meant; shell patterns allowed."""

    field: dict[str, list[str | int | float]] = {}


class Filter(_StrictModel):
    """Rows to keep and rows to leave out."""

    allowlist: FilterEntry | None = None
    denylist: FilterEntry | None = None


class Structure(_StrictModel):
    """Place of the question in a row, or the choice to send the whole row."""

    disable: bool = False
    question_key: str = "question"
    answer_key: str = "answer"
    generated_answer_key: str = "generated_answer"
    trajectory_key: str = "intermediate_steps"
    expected_trajectory_key: str = "expected_intermediate_steps"


class DatasetConfig(_StrictModel):
    """The section `eval.general.dataset` of the toolkit's YAML."""

    kind: Literal["json", "jsonl", "csv", "parquet", "xls"]
    file_path: Path
    id_key: str = "id"
    structure: Structure = Structure()
    filter: Filter | None = None


@dataclass(frozen=True)
class Item:
    """One run of the workflow: its id in the results, and what is sent."""

    id: str
    prompt: str


@dataclass(frozen=True)
class Dataset:
    """Rows that can be sent, and what was noticed while they were read."""

    rows: tuple[Row, ...]
    config: DatasetConfig
    notices: list[str] = field(default_factory=list)

    def items_for_level(self, concurrency: int, *, num_passes: int = 0, seed: int | None = 0) -> list[Item]:
        """Items to send at one level: enough to fill it, with copies of rows where there are too few.

        `num_passes`: Items are `concurrency * num_passes`; with 0, the largest multiple of the concurrency that the
        rows give, and at least the concurrency.
        `seed`: Start of the shuffle, a new one for each level and copy; None keeps the file's order.
        """
        rows = len(self.rows)
        size = concurrency * num_passes if num_passes else max(rows // concurrency, 1) * concurrency
        if size > MAX_ITEMS:
            raise ConfigError("too many runs for a level", where=f"concurrency {concurrency}", found=f"{size:,}")
        draw = random.Random(f"{seed}/{concurrency}")  # noqa: S311 - no secret hangs on it
        repeated = size > rows
        ids = [
            str(row[self.config.id_key]) if row.get(self.config.id_key) is not None else str(number)
            for number, row in enumerate(self.rows)
        ]
        # Copies of an earlier run are not copied as such, unless that would make two rows one.
        plain = [_REPEATED.sub("", identity) for identity in ids]
        ids = plain if repeated and len(set(plain)) == len(plain) else ids
        items: list[Item] = []
        for copy in range(math.ceil(size / rows)):
            order = list(range(rows))
            if seed is not None:
                draw.shuffle(order)
            suffix = f"_rep{copy}" if copy else ""
            items += [
                self._build_item(self.rows[number], ids[number] + suffix) for number in order[: size - len(items)]
            ]
        return items

    def _build_item(self, row: Row, identity: str) -> Item:
        if self.config.structure.disable:
            named = row | {self.config.id_key: identity} if self.config.id_key in row else row
            return Item(identity, json.dumps(named, ensure_ascii=False, default=str))
        question = row[self.config.structure.question_key]
        return Item(identity, question if isinstance(question, str) else json.dumps(question, default=str))


def read_dataset(config_file: str | Path) -> Dataset:
    """Read the dataset that a toolkit's YAML names.

    `config_file`: The YAML; `base` and `${VARIABLE:-default}` are followed. A relative `file_path` is taken from the
    working directory, as the toolkit does, else from beside the YAML.

    Returns: Rows in the file's order: filtered, each id once, with a question.
    """
    config_file = Path(config_file)
    config = _parse_dataset_config(load_nat_yaml(config_file), config_file)
    path = next((one for one in (config.file_path, config_file.parent / config.file_path) if one.is_file()), None)
    if path is None:
        where = f"{config_file}, eval.general.dataset.file_path"
        raise InputError("there is no such dataset", where=where, found=config.file_path)
    rows, notices = read_dataset_rows(path, config.kind)
    if len(rows) > MAX_ROWS:
        raise InputError("too many rows in the dataset", where=path, found=f"{len(rows):,}", allowed=f"{MAX_ROWS:,}")
    for entry, keep in ((config.filter.allowlist, True), (config.filter.denylist, False)) if config.filter else ():
        for column, patterns in (entry.field if entry else {}).items():
            # A column that is not there filters nothing: the toolkit's rule.
            if any(column in row for row in rows):
                names = list(map(str, patterns))
                rows = [
                    row for row in rows if any(fnmatch.fnmatch(str(row.get(column)), name) for name in names) == keep
                ]
    if any(config.id_key in row for row in rows):
        first: dict[str, Row] = {}
        for row in rows:
            first.setdefault(json.dumps(row.get(config.id_key), default=str), row)
        rows = list(first.values())
    if not config.structure.disable:
        # Leave out rows whose column `key`, the question, is empty, with a notice.
        if rows and not any(config.structure.question_key in row for row in rows):
            columns = sorted({str(name) for row in rows[:100] for name in row})[:20]
            do = "set eval.general.dataset.structure.question_key, or disable: true to send whole rows"
            raise InputError(
                "the dataset has no question column",
                where=path,
                found=columns,
                allowed=config.structure.question_key,
                do=do,
            )
        question_rows = [row for row in rows if not _is_empty_value(row.get(config.structure.question_key))]
        if len(question_rows) < len(rows):
            notices.append(f"{len(rows) - len(question_rows)} row(s) without a question skipped")
        rows = question_rows
    if not rows:
        raise InputError("no row to send in the dataset", where=path, do="look at its filters, or give it rows")
    if not any(config.id_key in row for row in rows):
        notices.append(f"no column {config.id_key} in the dataset: rows are numbered")
    return Dataset(tuple(rows), config, notices)


def _parse_dataset_config(document: Mapping[str, Any], where: Path) -> DatasetConfig:
    """Parse section eval.general.dataset of a config; only local files are allowed."""
    section = document
    for name in ("eval", "general", "dataset"):
        entry = section.get(name) if isinstance(section, Mapping) else None
        if not isinstance(entry, Mapping):
            message = "the config has no dataset to send"
            raise ConfigError(message, where=f"{where}, eval.general.dataset", do="name a _type and a file_path there")
        section = entry
    fields = dict(section)
    kind = fields.pop("_type", None)
    if kind == "custom" or fields.get("s3") or fields.get("remote_file_path"):
        do = "write the rows to a local json, jsonl, csv, parquet or xlsx file and name that"
        entry = "a function" if kind == "custom" else "remote storage"
        raise ConfigError(
            "datasets are read from local files only", where=f"{where}, eval.general.dataset", found=entry, do=do
        )
    for name in ("s3", "remote_file_path"):
        fields.pop(name, None)
    try:
        return DatasetConfig.model_validate({"kind": kind, **fields})
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in error.errors()]
        problems = [problem.replace("kind:", "_type:") for problem in problems]
        raise ConfigError(
            "dataset section not understood", where=f"{where}, eval.general.dataset", found=problems
        ) from error


def _is_empty_value(value: Any) -> bool:
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return missing or (isinstance(value, str) and not value.strip())
