"""The guide's Python runs as it stands there, on a session with a `df`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lore.local_spark import MARKS, local

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "lore-how-to.md"
pytestmark = MARKS


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with local(spark__sql__shuffle__partitions="8") as found:
        yield found


def test_the_guides_python_does_what_the_guide_says(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    left = spark.range(1000).selectExpr("id", "id % 7 AS k")
    names = {"spark": spark, "df": left.hint("merge").join(spark.range(100), "id").groupBy("k").count()}
    codes = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(codes) == 3
    for code in codes:
        exec(compile(code, str(GUIDE), "exec"), names)
    printed = capsys.readouterr().out
    assert "[loreId=9]" in printed
    assert "PASS" in printed
    assert (tmp_path / "dumps" / "nightly" / "loreId-9" / "plan.json").is_file()
