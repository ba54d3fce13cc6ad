"""Datasets of the toolkit's YAML: every format, key names, filters, and levels filled to the row."""

from __future__ import annotations

import itertools
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import openpyxl
import polars as pl
import pytest
import yaml

from workbench.core.errors import ConfigError, InputError
from workbench.sizing.compat_nat import eval_dataset

ROWS = [{"id": number, "question": f"q{number}", "answer": "x"} for number in range(5)]


def config(folder: Path, content: str | bytes | None = None, *, name: str = "d.json", **keys: Any) -> Path:
    path = folder / name
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    given = {"_type": "json", "file_path": str(path), **keys}
    (folder / "w.yml").write_text(yaml.safe_dump({"workflow": {"_type": "x"}, "eval": {"general": {"dataset": given}}}))
    return folder / "w.yml"


def ordered(folder: Path, content: str | bytes | None, **keys: Any) -> list[tuple[str, str]]:
    rows = eval_dataset.read_dataset(config(folder, content, **keys))
    return [(item.id, item.prompt) for item in rows.items_for_level(1, seed=None)]


EXPECTED = [(str(number), f"q{number}") for number in range(5)]


COLUMNS = {name: [row[name] for row in ROWS] for name in ("id", "question")}


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("json", json.dumps(ROWS)),
        ("json", json.dumps(COLUMNS)),
        ("json", json.dumps({name: dict(enumerate(values)) for name, values in COLUMNS.items()})),
        ("jsonl", "\n\n".join(map(json.dumps, ROWS)) + "\n"),
        ("csv", pl.DataFrame(ROWS).write_csv(quote_style="non_numeric")),
    ],
)
def test_every_format_gives_the_same_rows(kind: str, content: str, tmp_path: Path) -> None:
    assert ordered(tmp_path, content, _type=kind) == EXPECTED


def test_json_with_trailing_commas_is_read_with_a_notice(tmp_path: Path) -> None:
    found = eval_dataset.read_dataset(config(tmp_path, '[\n{"id": 1, "question": "a,] \\" ,}",},\n]\n'))
    assert [item.prompt for item in found.items_for_level(1)] == ['a,] " ,}']
    assert found.notices == ["d.json: trailing commas passed over"]


def test_parquet(tmp_path: Path) -> None:
    pl.DataFrame(ROWS).write_parquet(tmp_path / "d.json")
    assert ordered(tmp_path, None, _type="parquet") == EXPECTED


def workbook(path: Path, *sheets: list[list[object]]) -> None:
    book = openpyxl.Workbook()
    for number, rows in enumerate(sheets):
        sheet = book.active if number == 0 else book.create_sheet()
        for row in rows:
            sheet.append(row)
    book.save(path)


def test_the_first_sheet_of_a_workbook(tmp_path: Path) -> None:
    rows = [["id", "question", None], [7, "one", True], [None, None, None], [8.5, "two", "x"]]
    workbook(tmp_path / "d.xlsx", rows, [["question"], ["other"]])
    assert ordered(tmp_path, None, name="d.xlsx", _type="xls") == [("7", "one"), ("8.5", "two")]


@pytest.mark.parametrize(
    ("kind", "content", "told"),
    [
        ("json", "[1", "not JSON"),
        ("json", "[1]", "a row is no object"),
        ("json", '"text"', "no list of objects"),
        ("json", '{"id": 1}', "no list of objects"),
        ("json", "[" * 100_000, "not JSON|nested too deeply"),
        ("jsonl", '{"question": "a"}\n{', "line 2"),
        ("jsonl", "[]", "a line is no object"),
        ("parquet", "PAR", "not a readable Parquet file"),
        ("xls", "no zip", "older .xls"),
        ("json", b"\xff", "not UTF-8"),
        ("json", "[]", "no row to send"),
        ("json", '[{"q": 1}]', "no question column"),
        ("json", '[{"question": " "}]', "no row to send"),
    ],
)
def test_a_dataset_that_is_none_is_refused_with_its_place(
    kind: str, content: str | bytes, told: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=told) as refused:
        eval_dataset.read_dataset(config(tmp_path, content, _type=kind))
    assert "d.json" in str(refused.value)


SHEET = "xl/worksheets/sheet1.xml"
GROWN = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
GROWING = f'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY e0 "lol">{GROWN}]><worksheet>&e11;</worksheet>'


@pytest.mark.parametrize(
    ("part", "content"),
    [
        *itertools.product([SHEET, "xl/workbook.xml", "[Content_Types].xml"], ["", "<a"]),
        pytest.param(SHEET, GROWING, id="entities that grow do not fill the memory"),
    ],
)
def test_a_workbook_with_broken_parts_is_refused_with_its_place(tmp_path: Path, part: str, content: str) -> None:
    workbook(tmp_path / "good.xlsx", [["question"], ["one"]])
    with zipfile.ZipFile(tmp_path / "good.xlsx") as good, zipfile.ZipFile(tmp_path / "d.xlsx", "w") as bad:
        for name in good.namelist():
            bad.writestr(name, content if name == part else good.read(name))
    with pytest.raises(InputError, match="not a readable xlsx") as refused:
        eval_dataset.read_dataset(config(tmp_path, None, name="d.xlsx", _type="xls"))
    assert "d.xlsx" in str(refused.value)


def test_sizes_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = config(tmp_path, json.dumps(ROWS))
    monkeypatch.setattr(eval_dataset, "MAX_ROWS", 4)
    with pytest.raises(InputError, match="too many rows"):
        eval_dataset.read_dataset(where)
    monkeypatch.setattr(eval_dataset, "MAX_DATASET_BYTES", 10)
    with pytest.raises(InputError, match="too large"):
        eval_dataset.read_dataset(where)
    monkeypatch.setattr(eval_dataset, "MAX_YAML_BYTES", 10)
    with pytest.raises(InputError, match="too large"):
        eval_dataset.read_dataset(where)


def test_named_keys_are_followed(tmp_path: Path) -> None:
    rows = [{"nr": "a", "ask": "one"}, {"nr": "b", "ask": "two"}]
    keys = {"id_key": "nr", "structure": {"question_key": "ask"}}
    assert ordered(tmp_path, json.dumps(rows), **keys) == [("a", "one"), ("b", "two")]


def test_without_structure_the_whole_row_is_sent(tmp_path: Path) -> None:
    found = eval_dataset.read_dataset(config(tmp_path, '[{"id": 1, "x": "é"}]', structure={"disable": True}))
    assert [json.loads(item.prompt) for item in found.items_for_level(2, seed=None)] == [
        {"id": "1", "x": "é"},
        {"id": "1_rep1", "x": "é"},
    ]


def test_questions_that_are_no_text_are_sent_as_json(tmp_path: Path) -> None:
    assert ordered(tmp_path, '[{"id": 1, "question": {"a": [1]}}]') == [("1", '{"a": [1]}')]


def test_rows_without_a_question_and_repeated_ids_are_left_out(tmp_path: Path) -> None:
    rows = [*ROWS, {"id": 9, "question": None}, {"id": 10}, {"id": 0, "question": "again"}]
    found = eval_dataset.read_dataset(config(tmp_path, json.dumps(rows)))
    assert [(item.id, item.prompt) for item in found.items_for_level(1, seed=None)] == EXPECTED
    assert found.notices == ["2 row(s) without a question skipped"]


def test_rows_without_ids_are_numbered(tmp_path: Path) -> None:
    found = eval_dataset.read_dataset(config(tmp_path, '[{"question": "a"}, {"question": "b"}]'))
    assert [item.id for item in found.items_for_level(1, seed=None)] == ["0", "1"]
    assert found.notices == ["no column id in the dataset: rows are numbered"]


@pytest.mark.parametrize(
    ("chosen", "left"),
    [
        ({"allowlist": {"field": {"id": [1, 3]}}}, ["1", "3"]),
        ({"denylist": {"field": {"question": ["q[12]"]}}}, ["0", "3", "4"]),
        ({"allowlist": {"field": {"nowhere": ["x"]}}}, ["0", "1", "2", "3", "4"]),
        ({"allowlist": {"field": {"question": ["q*"]}}, "denylist": {"field": {"id": [0]}}}, ["1", "2", "3", "4"]),
    ],
)
def test_filters_keep_and_leave_out(chosen: dict[str, Any], left: list[str], tmp_path: Path) -> None:
    assert [identity for identity, _ in ordered(tmp_path, json.dumps(ROWS), filter=chosen)] == left


@pytest.mark.parametrize(
    ("concurrency", "passes", "size"),
    [(1, 0, 5), (2, 0, 4), (4, 0, 4), (5, 0, 5), (6, 0, 6), (16, 0, 16), (1, 2, 2), (3, 2, 6), (8, 1, 8)],
)
def test_a_level_has_as_many_items_as_the_toolkit_gives_it(
    concurrency: int, passes: int, size: int, tmp_path: Path
) -> None:
    rows = eval_dataset.read_dataset(config(tmp_path, json.dumps(ROWS)))
    for seed in (None, 0):
        items = rows.items_for_level(concurrency, num_passes=passes, seed=seed)
        assert len(items) == size
        assert len({item.id for item in items}) == size
        assert max(Counter(item.prompt for item in items).values()) == -(-size // len(ROWS))


def test_copies_are_numbered_and_in_the_files_order_when_asked_for(tmp_path: Path) -> None:
    rows = eval_dataset.read_dataset(config(tmp_path, json.dumps(ROWS[:2])))
    assert [item.id for item in rows.items_for_level(5, seed=None)] == ["0", "1", "0_rep1", "1_rep1", "0_rep2"]


def test_ids_of_earlier_copies_are_copied_by_their_first_name(tmp_path: Path) -> None:
    rows = [{"id": "a_rep3", "question": "x"}, {"id": "b", "question": "y"}]
    found = eval_dataset.read_dataset(config(tmp_path, json.dumps(rows)))
    assert [item.id for item in found.items_for_level(4, seed=None)] == ["a", "b", "a_rep1", "b_rep1"]
    assert [item.id for item in found.items_for_level(2, seed=None)] == ["a_rep3", "b"]
    twice = eval_dataset.read_dataset(config(tmp_path, json.dumps([{"id": "a", "question": "x"}, *rows])))
    assert len({item.id for item in twice.items_for_level(6)}) == 6


def test_the_mix_is_shuffled_by_seed_and_level(tmp_path: Path) -> None:
    rows = eval_dataset.read_dataset(config(tmp_path, json.dumps([{"id": n, "question": str(n)} for n in range(50)])))
    one = [item.id for item in rows.items_for_level(4, num_passes=2, seed=1)]
    assert one == [item.id for item in rows.items_for_level(4, num_passes=2, seed=1)]
    assert one != [item.id for item in rows.items_for_level(4, num_passes=2, seed=2)]
    assert set(one) != {str(n) for n in range(8)}
    assert set(one) != {item.id for item in rows.items_for_level(8, num_passes=1, seed=1)}


def test_a_level_of_too_many_runs_is_refused(tmp_path: Path) -> None:
    rows = eval_dataset.read_dataset(config(tmp_path, json.dumps(ROWS)))
    with pytest.raises(ConfigError, match="too many runs"):
        rows.items_for_level(100_000, num_passes=1000)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({"workflow": {}}, "no dataset"),
        ({"eval": {"general": None}}, "no dataset"),
        ({"eval": {"general": {"dataset": {"_type": "custom", "function": "a.b"}}}}, "local files only"),
        ({"eval": {"general": {"dataset": {"_type": "json", "remote_file_path": "x"}}}}, "local files only"),
        ({"eval": {"general": {"dataset": {"_type": "xml", "file_path": "x"}}}}, "_type"),
        ({"eval": {"general": {"dataset": {"_type": "json", "file_path": "x", "idkey": "y"}}}}, "idkey"),
        ([], "no mapping"),
    ],
)
def test_a_config_without_a_usable_dataset_is_refused(document: Any, told: str, tmp_path: Path) -> None:
    (tmp_path / "w.yml").write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError) as refused:
        eval_dataset.read_dataset(tmp_path / "w.yml")
    assert told in str(refused.value)


def test_a_dataset_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such dataset"):
        eval_dataset.read_dataset(config(tmp_path, None))


def test_variables_are_put_in_and_base_files_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROWS_OF", "d.json")
    (tmp_path / "d.json").write_text(json.dumps(ROWS))
    (tmp_path / "base.yml").write_text(
        "eval:\n  general:\n    dataset: {_type: json, file_path: '${ROWS_OF}', id_key: '${KEY:-id}'}\n    more: 1\n"
    )
    (tmp_path / "w.yml").write_text("base: base.yml\neval: {general: {more: '${UNSET}x${OTHER:-y}'}}\n")
    assert eval_dataset.load_nat_yaml(tmp_path / "w.yml")["eval"]["general"]["more"] == "xy"
    # The file lies beside the YAML, not in the working directory.
    assert len(eval_dataset.read_dataset(tmp_path / "w.yml").rows) == 5


def test_a_base_that_leads_back_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text("base: b.yml\n")
    (tmp_path / "b.yml").write_text("base: a.yml\n")
    with pytest.raises(ConfigError, match="lead back"):
        eval_dataset.load_nat_yaml(tmp_path / "a.yml")
    (tmp_path / "a.yml").write_text("base: 3\n")
    with pytest.raises(ConfigError, match="not a file name"):
        eval_dataset.load_nat_yaml(tmp_path / "a.yml")


def test_a_yaml_error_does_not_repeat_a_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "s3cret-value")
    (tmp_path / "w.yml").write_text("a: 1\nllm: {key: ${SECRET_KEY}: [\n")
    with pytest.raises(InputError, match="not YAML") as refused:
        eval_dataset.load_nat_yaml(tmp_path / "w.yml")
    assert "s3cret" not in str(refused.value)
    assert "line" in str(refused.value)
    (tmp_path / "w.yml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not UTF-8"):
        eval_dataset.load_nat_yaml(tmp_path / "w.yml")
    with pytest.raises(InputError, match="cannot be read"):
        eval_dataset.load_nat_yaml(tmp_path / "none.yml")
