"""The page about accuracy says what the shipped recordings give."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs import accuracy

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


@pytest.mark.slow
def test_the_page_is_what_the_shipped_recordings_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = accuracy.PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(accuracy, "PAGE", tmp_path / "accuracy.md")
    accuracy.main([])
    made = (tmp_path / "accuracy.md").read_text(encoding="utf-8")
    assert NUMBER.sub("#", made) == NUMBER.sub("#", kept), "make it anew: python -m docs.accuracy"
    # Libraries of linear algebra differ in the last digits, and a printed one may round the other way.
    pairs = zip(NUMBER.findall(made), NUMBER.findall(kept), strict=True)
    assert [pair for pair in pairs if abs(float(pair[0]) - float(pair[1])) > 0.011 * max(1, abs(float(pair[1])))] == []
