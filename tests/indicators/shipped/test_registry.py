"""Which indicator does a name mean, and which case a text?"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workbench.core.errors import ConfigError
from workbench.indicators.compat_thoth import thoth_indicators
from workbench.indicators.shipped.indicator_classes import (
    GroupBy,
    Matmul,
    ReadParquet,
    ScalarLoop,
    Sort,
    list_shipped_indicators,
    load_indicator,
    parse_case,
)

OWN = '''
"""Mine."""
from __future__ import annotations
from workbench.indicators.contract.indicator import Indicator, parameter, result
from helper_of_mine import DEFAULT

class Mine(Indicator):
    """Mine."""
    n: int = parameter(DEFAULT)
    took_ms: float = result(unit="ms", better="lower")
'''


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(OWN)
    (tmp_path / "helper_of_mine.py").write_text("DEFAULT = 7\n")
    return tmp_path / "mine.py"


@pytest.mark.parametrize("name", ["GroupBy", "groupby", "group-by", "group_by", "GROUPBY"])
def test_a_shipped_one_is_found_in_any_spelling(name: str) -> None:
    assert load_indicator(name) is GroupBy


@pytest.mark.parametrize("model", thoth_indicators.MODELS, ids=lambda model: model.__name__)
def test_those_of_the_old_contract_are_found_by_their_names(model: type) -> None:
    assert load_indicator(model.__name__) is model
    assert load_indicator(model.__name__.lower()) is model


def test_an_unknown_name_is_answered_with_all_there_are() -> None:
    with pytest.raises(ConfigError, match="no indicator of this name") as caught:
        load_indicator("matmull")
    told = str(caught.value)
    assert all(one.__name__ in told for one in (*list_shipped_indicators(), *thoth_indicators.MODELS))
    assert "file.py:Class" in told


def test_one_of_a_file_is_found_by_path_and_class(own: Path) -> None:
    before = list(sys.path)
    found = load_indicator(f"{own}:Mine")
    assert found.parameters() == {"n": 7}
    # A file that declares one needs no class named.
    assert load_indicator(str(own)).__name__ == "Mine"
    assert sys.path == before
    assert parse_case(f"{own}:Mine:n=3").parameters == parse_case(f"{own}:n=3").parameters == {"n": 3}
    assert load_indicator("workbench.indicators.shipped.indicator_classes:Matmul") is Matmul, "by its module"


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("{own}:Yours", "no such indicator there"),
        ("{own}:Indicator", "no such indicator there"),
        ("{folder}/none.py:Mine", "cannot be imported"),
        ("{broken}:Mine", "cannot be imported"),
        ("{several}", "name one indicator"),
        (":Mine", "no indicator of this name"),
        ("", "no indicator of this name"),
    ],
)
def test_what_is_not_there_is_told(own: Path, name: str, sentence: str) -> None:
    broken, several = own.with_name("broken.py"), own.with_name("several.py")
    broken.write_text("raise RuntimeError('not\\n' * 500)")
    several.write_text(OWN + OWN[OWN.index("class") :].replace("Mine", "Other"))
    with pytest.raises(ConfigError, match=sentence) as caught:
        load_indicator(name.format(own=own, folder=own.parent, broken=broken, several=several))
    assert len(str(caught.value)) < 1_000
    assert caught.value.exit_code == 2


def test_a_case_is_read_with_the_types_of_its_parameters() -> None:
    case = parse_case("matmul:framework=torch, n=256")
    assert case.indicator is Matmul
    assert case.parameters["n"] == 256
    assert case.label == "Matmul[framework=torch,n=256]"
    assert parse_case("sort").label == "Sort"
    assert parse_case("sort:n=100000").label == "Sort"
    assert parse_case("ufunc:most_ulp=4").parameters["most_ulp"] == 4.0


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("sort:n=many", "not a value for this parameter"),
        ("sort:m=1", "unknown parameter"),
        ("sort:n=1,n=2", "a parameter twice"),
        ("sort:n=1,2", "not a parameter and its value"),
        ("sort:framework=pandas", "not a value for this parameter"),
        ("n=5", "no indicator is named"),
        ("", "no indicator"),
    ],
)
def test_what_is_no_case_is_told(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_case(text)


@pytest.mark.parametrize(
    ("text", "packages", "lacks"),
    [
        ("matmul", {"numpy"}, ()),
        ("matmul", {"pandas"}, ("numpy",)),
        ("matmul:framework=tensorflow", {"tensorflow-cpu", "numpy"}, ()),
        ("scalar-loop:framework=python", set(), ()),
        ("read-parquet", {"pandas"}, ("pyarrow",)),
        ("read-parquet", {"pandas", "pyarrow"}, ()),
        ("read-parquet:framework=polars", {"polars"}, ()),
        ("import-time:framework=scikit-learn", {"scikit-learn"}, ()),
    ],
)
def test_a_stack_must_have_what_is_measured(text: str, packages: set[str], lacks: tuple[str, ...]) -> None:
    case = parse_case(text)
    assert case.indicator.lacks(case.parameters, packages) == lacks


def test_names_and_versions_differ_between_indicators_and_stay_the_same() -> None:
    shipped = list_shipped_indicators()
    versions = [one.version() for one in shipped]
    assert len(set(versions)) == len(versions) == 13
    assert versions == [one.version() for one in list_shipped_indicators()]
    names = [one.__name__.lower() for one in (*shipped, *thoth_indicators.MODELS)]
    assert len(set(names)) == len(names)
    assert {Sort, ReadParquet, ScalarLoop} <= set(shipped)
