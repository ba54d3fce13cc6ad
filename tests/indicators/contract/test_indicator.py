"""What a declaration may say, what it is refused, and what follows from it."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any, ClassVar, Literal, Union

import pytest
from pydantic import Field

from workbench.core.errors import ConfigError
from workbench.indicators.contract.indicator import (
    BASE_COLUMNS,
    USAGE,
    Case,
    Indicator,
    check,
    list_scalar_types,
    parameter,
    result,
)


class Sorting(Indicator):
    """Sort."""

    script: ClassVar[Path | str] = "print(1)"
    requires: ClassVar[tuple[str, ...]] = ("{library}", "numpy|numpy-quick")
    n: int = parameter(1000, ge=1, le=10**6, unit="numbers")
    library: Literal["numpy", "torch"] = parameter("numpy")
    share: float = parameter(0.5, ge=0, le=1, env="SHARE_OF_SORTED")
    stable: bool = parameter(False)
    note: str | None = parameter(None, max_length=10)
    elapsed_ms: float = result(unit="ms", better="lower", tolerance=0.05)
    rate: float = result(unit="1/s", better="higher", derived=True)
    swaps: int = result(unit="swaps")
    wrong: int = check(equals=0)


def declared(class_name: str = "Made", /, **fields: Any) -> type[Indicator]:
    """A class of these fields, as (type, default)."""
    space: dict[str, Any] = {"__annotations__": {key: kind for key, (kind, _) in fields.items()}}
    space |= {"__module__": __name__} | {key: value for key, (_, value) in fields.items()}
    return type(class_name, (Indicator,), space)


# As older code spells what may be null.
OLD_FLOAT, OLD_INT = Union[float, None], Union[int, None]  # noqa: UP007
TIME = (float, result(unit="ms", better="lower"))
BOUND = (float, check(at_most="limit"))
OTHER_NAME = Field(alias="Off", json_schema_extra=check().json_schema_extra)


def test_usage_has_the_sixteen_fields_of_a_process() -> None:
    assert set(USAGE) == {name for name in dir(resource.struct_rusage) if name.startswith("ru_")}
    assert len(USAGE) == 16


@pytest.mark.parametrize("column", sorted(BASE_COLUMNS))
@pytest.mark.parametrize("spelled", [str.lower, str.upper])
@pytest.mark.filterwarnings("ignore:Field name")
def test_no_field_is_called_like_what_every_run_has(column: str, spelled: Any) -> None:
    with pytest.raises(ConfigError, match="every run has a column of this name"):
        declared(took=TIME, **{spelled(column): (int, parameter(1))})


@pytest.mark.parametrize("own", ["script", "files", "requires", "parameters", "sources", "fields_of", "lacks"])
@pytest.mark.filterwarnings("ignore:Field name")
def test_no_field_is_called_like_what_the_class_has(own: str) -> None:
    with pytest.raises(ConfigError, match="the class itself has something of this name"):
        declared(took=TIME, **{own: (int, parameter(1))})


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"took": TIME, "x": (int, 5)}, "a field without a role"),
        ({"took": TIME, "x": (int, Field(5))}, "a field without a role"),
        ({"took": TIME, "x": (list[int], parameter(None))}, "a type that no column has"),
        ({"took": TIME, "x": (Any, parameter(None))}, "a type that no column has"),
        ({"took": TIME, "x": (None, parameter(None))}, "a type that no column has"),
        ({"took": TIME, "x" * 64: (int, parameter(1))}, "not a name for a field"),
        ({"x": (int, parameter(1))}, "an indicator without a result"),
        ({"took": (str, result(unit="", better="lower"))}, "only numbers can be better"),
        ({"took": (float, result(unit="", alias="Took"))}, "only parameters have an alias"),
        ({"took": TIME, "off": (int, OTHER_NAME)}, "only parameters have an alias"),
        ({"took": TIME, "off": (str, check(at_most=1))}, "only numbers have a bound"),
        ({"took": TIME, "off": BOUND}, "a bound that is no parameter"),
        ({"took": TIME, "off": (float, check(at_most="took"))}, "a bound that is no parameter"),
        ({"took": TIME, "limit": (str, parameter("1")), "off": BOUND}, "a bound that is no parameter"),
        ({"took": TIME, "limit": (OLD_FLOAT, parameter(None)), "off": BOUND}, "a bound that is no parameter"),
    ],
)
def test_a_declaration_that_no_table_can_hold_is_refused(fields: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        declared(**fields)
    assert "indicator Made" in str(caught.value)


@pytest.mark.parametrize("name", ["Größe", "X" * 64, "_Hidden"])
def test_a_class_has_a_name_that_a_table_can_have(name: str) -> None:
    with pytest.raises(ConfigError, match="not a name for an indicator"):
        declared(name, took=TIME)


def test_only_results_with_a_direction_that_follow_from_no_other_are_compared() -> None:
    (metric,) = Sorting.metrics()
    assert (metric.field, metric.unit, metric.better, metric.tolerance) == ("elapsed_ms", "ms", "lower", 0.05)


def test_parameters_have_their_defaults_and_may_come_as_texts() -> None:
    assert Sorting.parameters() == {"n": 1000, "library": "numpy", "share": 0.5, "stable": False, "note": None}
    found = Sorting.parameters({"n": "5", "share": "0.25", "stable": "true", "note": "x"})
    assert found == {"n": 5, "library": "numpy", "share": 0.25, "stable": True, "note": "x"}
    made = declared(took=TIME, n=(int, parameter()))
    with pytest.raises(ConfigError, match="a parameter without a value"):
        made.parameters()
    assert made.parameters({"n": 3}) == {"n": 3}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"m": 1}, "unknown parameter"),
        ({"n": 0}, "not a value for this parameter"),
        ({"n": "1.5"}, "not a value for this parameter"),
        ({"library": "jax"}, "not a value for this parameter"),
        ({"share": "nan"}, "not a value for this parameter"),
        ({"note": "x" * 11}, "not a value for this parameter"),
    ],
)
def test_a_parameter_that_is_none_or_out_of_bounds_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as caught:
        Sorting.parameters(given)
    assert "indicator Sorting" in str(caught.value)


def test_the_environment_carries_parameters_under_their_variables_and_leaves_null_ones_out() -> None:
    found = Sorting.environment(Sorting.parameters({"stable": True}))
    assert found == {"PI_N": "1000", "PI_LIBRARY": "numpy", "SHARE_OF_SORTED": "0.5", "PI_STABLE": "True"}


def test_a_stack_lacks_what_it_has_under_none_of_its_names() -> None:
    given = Sorting.parameters({"library": "torch"})
    assert Sorting.needs(given) == ("torch", "numpy|numpy-quick")
    assert Sorting.lacks(given, {"torch", "numpy-quick"}) == ()
    assert Sorting.lacks(given, {"numpy": "2.2.6"}) == ("torch",)
    assert Sorting.lacks(given, ()) == ("torch", "numpy|numpy-quick")


def test_several_compared_results_are_told_apart_by_their_fields() -> None:
    made = declared(took_ms=(float, result(unit="ms", better="lower")), used=(int, result(unit="B", better="lower")))
    assert [name for name, _ in Case.from_parameters(made).metrics()] == ["Made.took_ms", "Made.used"]
    assert [name for name, _ in Case.from_parameters(Sorting).metrics()] == ["Sorting"]
    # A label names only what differs from the defaults.
    assert Case.from_parameters(Sorting, {"n": 5, "library": "numpy"}).label == "Sorting[n=5]"


def test_a_version_changes_with_what_is_measured_and_not_with_prose() -> None:
    plain = declared(took=TIME).version()
    assert len(plain) == 12
    assert plain == declared(took=(float, result(unit="ms", better="lower", about="How long."))).version()
    others = [
        declared(took=(float, result(unit="s", better="lower"))),
        declared(took=(float, result(unit="ms", better="higher"))),
        declared(took=(float, result(unit="ms", better="lower", tolerance=0.1))),
        declared(took=(float, result(unit="ms", better="lower", ge=0))),
        declared(took=(int, result(unit="ms", better="lower"))),
        declared(took=TIME, n=(int, parameter(1))),
        declared(took=TIME, n=(int, parameter(2))),
        declared(took=TIME, n=(int, parameter(2, ge=1))),
        declared(took=TIME, n=(int, parameter(2, env="N"))),
        declared(took=TIME, n=(Literal[1, 2], parameter(2))),
        declared(took=TIME, n=(int | None, parameter(2))),
        declared("Other", took=TIME),
    ]
    assert len({plain, *(one.version() for one in others)}) == len(others) + 1
    # How a type is spelled does not count.
    assert declared(took=TIME, n=(OLD_INT, parameter(2))).version() == others[-2].version()


def test_a_version_changes_with_a_script_and_every_file_beside_it() -> None:
    plain = Sorting.version()
    assert Sorting.version({"script.py": "print(1)"}) == plain
    found = {plain, Sorting.version({"script.py": "print(2)"}), Sorting.version({"script.py": "print(1)", "a.py": ""})}
    # A boundary that moves from one file to the next is a difference, too.
    found |= {Sorting.version({"a": "bc", "d": ""}), Sorting.version({"a": "b", "cd": ""})}
    assert len(found) == 5


def filed(script: Path | str) -> type[Indicator]:
    return type("Filed", (Sorting,), {"script": script, "files": {"data.txt": "1"}, "__module__": __name__})


def test_sources_are_read_from_files_and_texts(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_text("print('ü')", encoding="utf-8")
    assert filed(tmp_path / "work.py").sources() == {"script.py": "print('ü')", "data.txt": "1"}


def test_a_script_that_is_not_there_or_no_text_is_told(tmp_path: Path) -> None:
    (tmp_path / "work.py").write_bytes(b"\xff\xfe\x00")
    for script, sentence in (
        ("", "has no script"),
        (Path("no_such_script.py"), "cannot read a script"),
        (tmp_path / "work.py", "cannot read a script"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            filed(script).sources()


@pytest.mark.parametrize(
    ("annotation", "kinds", "null"),
    [
        (int, {int}, False),
        (OLD_FLOAT, {float}, True),
        (int | str | None, {int, str}, True),
        (Literal["a", 1], {str, int}, False),
        (list, {object}, False),
        (None, set(), True),
    ],
)
def test_the_plain_types_of_an_annotation(annotation: Any, kinds: set[type], null: bool) -> None:
    assert list_scalar_types(annotation) == (kinds, null)
