"""Evaluation dataset of the toolkit's YAML: filtered rows, and items for each level.

The keys are those of `eval.general.dataset`; rows become items as NeMo Agent Toolkit 1.9.0 makes them (filters,
duplicate ids, key names, copies with `_rep1` on their ids). Deliberately otherwise: the rows are shuffled, for the
first rows of a file are seldom a fair mix; rows without a question go before a level is filled; trailing commas pass.
"""

from __future__ import annotations

import fnmatch
import json
import math
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from workbench.core.errors import ConfigError, InputError
from workbench.sizing.compat_nat import dataset_files
from workbench.sizing.compat_nat.dataset_files import load_nat_yaml

MAX_ROWS = 1_000_000
MAX_ITEMS = 1_000_000
_REPEATED = re.compile(r"_rep\d+$")

Row = dict[str, Any]


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
    """Where the question stands in a row, or that the whole row is sent."""

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
        """The items of one level: as many as fill it, copies of rows where they do not suffice.

        `num_passes`: Items are `concurrency * num_passes`; with 0, the largest multiple of the concurrency that the
        rows give, and at least the concurrency.
        `seed`: Start of the shuffle, a new one for each level and copy; None keeps the file's order.
        """
        rows = len(self.rows)
        size = concurrency * num_passes if num_passes else max(rows // concurrency, 1) * concurrency
        if size > MAX_ITEMS:
            raise ConfigError("too many runs for a level", where=f"concurrency {concurrency}", found=f"{size:,}")
        draw = random.Random(f"{seed}/{concurrency}")  # noqa: S311 - no secret hangs on it
        ids = _build_item_ids(self.rows, self.config.id_key, repeated=size > rows)
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
    path = _find_dataset_file(config.file_path, config_file)
    rows, notices = dataset_files.read_dataset_rows(path, config.kind)
    if len(rows) > MAX_ROWS:
        raise InputError("too many rows in the dataset", where=path, found=f"{len(rows):,}", allowed=f"{MAX_ROWS:,}")
    rows = _filter_rows(rows, config.filter)
    rows = _drop_duplicate_ids(rows, config.id_key)
    if not config.structure.disable:
        rows = _drop_rows_without_question(rows, config.structure.question_key, path, notices)
    if not rows:
        raise InputError("no row to send in the dataset", where=path, do="look at its filters, or give it rows")
    if not any(config.id_key in row for row in rows):
        notices.append(f"no column {config.id_key} in the dataset: rows are numbered")
    return Dataset(tuple(rows), config, notices)


def _parse_dataset_config(document: Mapping[str, Any], where: Path) -> DatasetConfig:
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


def _find_dataset_file(file_path: Path, config_file: Path) -> Path:
    for path in (file_path, config_file.parent / file_path):
        if path.is_file():
            return path
    raise InputError(
        "there is no such dataset", where=f"{config_file}, eval.general.dataset.file_path", found=file_path
    )


def _filter_rows(rows: list[Row], chosen: Filter | None) -> list[Row]:
    if chosen is None:
        return rows
    for entry, keep in ((chosen.allowlist, True), (chosen.denylist, False)):
        for column, patterns in (entry.field if entry else {}).items():
            # A column that is not there filters nothing: the toolkit's rule.
            if any(column in row for row in rows):
                rows = [row for row in rows if _matches_any_pattern(row.get(column), patterns) == keep]
    return rows


def _matches_any_pattern(value: Any, patterns: Iterable[object]) -> bool:
    return any(fnmatch.fnmatch(str(value), str(pattern)) for pattern in patterns)


def _drop_duplicate_ids(rows: list[Row], id_key: str) -> list[Row]:
    """The first row of each id; rows all without one stay."""
    if not any(id_key in row for row in rows):
        return rows
    first: dict[str, Row] = {}
    for row in rows:
        first.setdefault(json.dumps(row.get(id_key), default=str), row)
    return list(first.values())


def _drop_rows_without_question(rows: list[Row], key: str, path: Path, notices: list[str]) -> list[Row]:
    if rows and not any(key in row for row in rows):
        columns = sorted({str(name) for row in rows[:100] for name in row})[:20]
        do = "set eval.general.dataset.structure.question_key, or disable: true to send whole rows"
        raise InputError("the dataset has no question column", where=path, found=columns, allowed=key, do=do)
    question_rows = [row for row in rows if not _is_empty_value(row.get(key))]
    if len(question_rows) < len(rows):
        notices.append(f"{len(rows) - len(question_rows)} row(s) without a question left out")
    return question_rows


def _is_empty_value(value: Any) -> bool:
    missing = value is None or (isinstance(value, float) and math.isnan(value))
    return missing or (isinstance(value, str) and not value.strip())


def _build_item_ids(rows: Sequence[Row], id_key: str, *, repeated: bool) -> list[str]:
    ids = [str(row[id_key]) if row.get(id_key) is not None else str(number) for number, row in enumerate(rows)]
    # Copies of an earlier run are not copied as such, unless that would make two rows one.
    plain = [_REPEATED.sub("", identity) for identity in ids]
    return plain if repeated and len(set(plain)) == len(plain) else ids
