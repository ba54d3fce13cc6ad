"""Modules that pickled functions import are known without unpickling, and those of no installed package are named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workbench.lore.dump_reader.function_modules import list_modules, select_missing_modules

cloudpickle = pytest.importorskip("pyspark.cloudpickle")


def test_modules_of_a_function_and_of_what_it_uses_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_a_script.py").write_text("def norm(x):\n    return x + 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import beside_a_script  # type: ignore[import-not-found]
    import polars as pl

    assert list_modules(cloudpickle.dumps(beside_a_script.norm)) == ["beside_a_script"]

    def use_both(x: int) -> object:
        return pl.Series([beside_a_script.norm(x)])

    assert {"polars", "beside_a_script"} <= set(list_modules(cloudpickle.dumps(use_both)))
    assert select_missing_modules(["beside_a_script", "polars", "json", "__main__", "no_such_module_here"]) == [
        "beside_a_script",
        "no_such_module_here",
    ]
    monkeypatch.delitem(sys.modules, "beside_a_script")


@pytest.mark.parametrize("content", [b"", b"no pickle", b"\x80\x05\x95"])
def test_what_is_no_pickle_has_no_modules(content: bytes) -> None:
    assert list_modules(content) == []
