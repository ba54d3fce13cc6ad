"""One failing query is dumped as it failed, and the planted row is found; test_failing_and_bisect.py has all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.lore import failures

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


def test_the_row_that_an_error_needs_is_found_in_the_dump_of_a_failing_query(tmp_path: Path) -> None:
    found = failures.quick_outcome(tmp_path)
    said = found["dump"]["udf-on"]["said"]
    assert "BatchEvalPython, fails on partition " in said
    assert "ValueError" in said
    search = found["work"]
    assert (search["reproduced"], search["minimal"]) == (True, True)
    (one,) = search["inputs"]
    (row,) = [json.loads(row["values"]) for row in one["rows"]]
    assert failures.BAD in row.values()
