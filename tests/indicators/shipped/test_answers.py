"""Is a wrong answer found? Inputs that are the same everywhere; counts of operations; errors of functions."""

from __future__ import annotations

import importlib
import itertools
import math
import struct
from decimal import Decimal, localcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.indicators.shipped.making import document, spoiled
from workbench.indicators.contract.indicator import Indicator
from workbench.indicators.shipped.indicator_classes import (
    Argsort,
    Conv1d,
    Conv2d,
    GroupBy,
    Hello,
    Join,
    Matmul,
    ReadCsv,
    ReadParquet,
    ScalarLoop,
    Sort,
    Ufunc,
)

SCRIPTS = "workbench.indicators.shipped.scripts"
_conv, _errors, _measure, _ordering, _parquet, matmul = (
    importlib.import_module(f"{SCRIPTS}.{name}")
    for name in ("_conv", "_errors", "_measure", "_ordering", "_parquet", "matmul")
)


CUT = "lambda a, b: real(*((x.view('i4') & ~0x1FFF).view('f4') for x in (a, b)))"
BOTH = ["error_eps", "wrong"]
NAN = "lambda a, b: [found := real(a, b), found.__setitem__((-1, -1), float('nan'))][0]"


@pytest.mark.live
@pytest.mark.parametrize(
    ("indicator", "name", "fault", "given", "sentences"),
    [
        (Matmul, "matmul", "lambda a, b: real(a, b) * 1.0001", {"n": 64}, BOTH),
        # Inputs cut to ten bits: what a graphics processor does with float32 unless it is told not to.
        (Matmul, "matmul", CUT, {"n": 512}, BOTH),
        (Matmul, "matmul", NAN, {"n": 64}, BOTH),
        (Matmul, "matmul", "lambda a, b: real(a, b) + a.dtype.type(1)", {"n": 64, "dtype": "int32"}, ["wrong"]),
        (Conv1d, "tensordot", "lambda *a, **k: real(*a, **k)[:, ::-1]", {"width": 64}, BOTH),
        (Conv2d, "tensordot", "lambda *a, **k: real(*a, **k) * 1.0001", {"width": 16, "height": 16}, BOTH),
        (Sort, "sort", "lambda x: real(x)[::-1]", {"n": 1000}, ["wrong"]),
        (Argsort, "argsort", "lambda x: numpy.arange(len(x))", {"n": 1000}, ["wrong"]),
        (Argsort, "argsort", "lambda x: numpy.arange(1, len(x) + 1)", {"n": 1000}, ["wrong"]),
        (Ufunc, "sin", "lambda x: real(x) * (1 + 2**-51)", {"n": 1000}, ["error_ulp"]),
        (Ufunc, "sin", "lambda x: x * numpy.nan", {"n": 1000}, ["error_ulp"]),
        (ScalarLoop, "array", "lambda values, **k: real(values[1:] + values[:1], **k)", {}, ["wrong"]),
        (Hello, "array", "lambda values: real(values[::-1])", {}, ["wrong"]),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else "",
)
def test_a_wrong_answer_does_not_pass(
    indicator: type[Indicator], name: str, fault: str, given: dict[str, Any], sentences: list[str]
) -> None:
    failed = spoiled(indicator, "numpy", f"real = numpy.{name}\nnumpy.{name} = {fault}", given).failed_checks
    assert [sentence.split()[0] for sentence in failed] == sentences
    # The same, unspoiled, passes.
    assert document(indicator, given).failed_checks == ()


@pytest.mark.live
@pytest.mark.parametrize(
    ("indicator", "module", "name", "fault"),
    [
        (GroupBy, "pandas", "core.groupby.SeriesGroupBy.agg", "lambda *a, **k: real(*a, **k) + 2**-12"),
        (GroupBy, "polars", "Expr.sum", "lambda self: real(self) + 2**-12"),
        (Join, "pandas", "DataFrame.merge", "lambda *a, **k: real(*a, **k)[1:]"),
        (Join, "polars", "DataFrame.join", "lambda *a, **k: real(*a, **k).with_columns(polars.col('right').reverse())"),
        (ReadCsv, "pandas", "read_csv", "lambda path: real(path, dtype={'value': 'f4'})"),
        (ReadCsv, "polars", "read_csv", "lambda path: real(path)[:-1]"),
        (ReadParquet, "pandas", "read_parquet", "lambda path: real(path)[['id', 'word']]"),
        (ReadParquet, "polars", "read_parquet", "lambda path: real(path)[::-1]"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else value if value.isalpha() else "",
)
def test_a_wrong_table_does_not_pass(indicator: type[Indicator], module: str, name: str, fault: str) -> None:
    rows = "rows" if "rows" in indicator.model_fields else "n"
    changed = f"real = {module}.{name}\n{module}.{name} = {fault}"
    (sentence,) = spoiled(indicator, module, changed, {"framework": module, rows: 2_000}).failed_checks
    assert sentence.startswith("wrong is ")


@pytest.mark.live
@pytest.mark.parametrize("indicator", [GroupBy, Join, ReadCsv, ReadParquet])
def test_two_libraries_get_the_same_input_and_give_the_same_answer(indicator: type[Indicator]) -> None:
    one, other = (document(indicator, {"framework": name}) for name in ("pandas", "polars"))
    assert one.checks == other.checks


@pytest.mark.live
@pytest.mark.parametrize(
    ("indicator", "digests"),
    [
        (Matmul, {"input_digest": "047529804046b3fa"}),
        (Conv1d, {"input_digest": "850d60b86fbf1bcc"}),
        (Conv2d, {"input_digest": "888d88570a42a2e5"}),
        (Sort, {"input_digest": "22bc6792890103e8", "answer_digest": "074f1133bc7fa8c0"}),
        (Argsort, {"input_digest": "1cfdd0d483216e46", "answer_digest": "dbe5c6695492cff1"}),
        (Ufunc, {"input_digest": "91cb973c31b20caf"}),
        (GroupBy, {"input_digest": "acf8c59e19cc6954", "answer_digest": "8dca2c60afe68210"}),
        (ReadCsv, {"input_digest": "de332dd1e10a37ce", "answer_digest": "2caa8b5cd4f2f30a"}),
        (ScalarLoop, {"input_digest": "127521869c16de96"}),
    ],
)
def test_input_and_answer_are_the_same_on_every_machine(indicator: type[Indicator], digests: dict[str, str]) -> None:
    found = document(indicator).checks
    assert {name: found[name] for name in digests} == digests
    if indicator is Sort:
        assert document(Sort, {"seed": 1}).checks["input_digest"] != found["input_digest"]


@pytest.mark.parametrize("bits", [52, 23, 10])
def test_random_numbers_fit_their_type_exactly_and_cover_the_range(bits: int) -> None:
    numbers = _measure.uniform(20_000, 3, bits)
    assert all(value * 2**bits == int(value * 2**bits) for value in numbers)
    assert -0.5 <= min(numbers) < -0.49 < 0.49 < max(numbers) < 0.5
    # Four standard errors of a uniform mean.
    assert abs(math.fsum(numbers) / 20_000) < 4 * math.sqrt(1 / 12 / 20_000)


def test_random_numbers_are_those_of_the_standard_generators_bits() -> None:
    import random

    words = [random.Random(5).getrandbits(64 * 3) >> 64 * k & (2**64 - 1) for k in range(3)]
    assert list(_measure.wholes(3, 5, 8)) == [word & 255 for word in words]
    assert list(_measure.uniform(3, 5)) == [(word & (2**52 - 1)) / 2**52 - 0.5 for word in words]
    assert list(_measure.wholes(0, 5, 8)) == []


def test_random_numbers_are_the_same_in_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _measure.wholes(1000, 7, 60), _measure.uniform(1000, 7), _measure.uniform(1000, 7, 10)
    for chunk in (1, 3, 999, 1000):
        monkeypatch.setattr(_measure, "_CHUNK", chunk)
        assert (_measure.wholes(1000, 7, 60), _measure.uniform(1000, 7), _measure.uniform(1000, 7, 10)) == whole


def test_no_more_bits_are_drawn_at_once_than_the_generator_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    import random

    drawn = []

    class Counting(random.Random):
        def getrandbits(self, k: int) -> int:
            drawn.append(k)
            return 0

    monkeypatch.setattr(random, "Random", Counting)
    words = (1 << 25) + 1
    assert sum(len(chunk) for chunk in _measure._patterned(words, 0, 1, 0)) == 8 * words
    assert sum(drawn) == 64 * words
    assert max(drawn) < 2**31


def test_operations_of_a_product_are_counted_as_by_hand() -> None:
    for n in (1, 2, 5):
        count = 0
        for _ in range(n * n):
            count += n  # multiplications
            count += n - 1  # additions
        assert matmul.operations(n) == count == 2 * n**3 - n**2


@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize(
    ("sizes", "filters"), [((9,), (3,)), ((10,), (4,)), ((6, 7), (3, 2)), ((5, 5), (5, 5)), ((4, 9), (1, 3))]
)
def test_operations_of_a_convolution_are_counted_as_by_hand(
    sizes: tuple[int, ...], filters: tuple[int, ...], stride: int
) -> None:
    batch, channels, out = 2, 3, 4
    count, places = 0, 0
    starts = [range(0, size - one + 1, stride) for size, one in zip(sizes, filters, strict=True)]
    for _ in itertools.product(range(batch), *starts, range(out)):
        places += 1
        products = math.prod(filters) * channels
        count += products + products - 1
    lengths = _conv.lengths(sizes, filters, stride)
    assert batch * math.prod(lengths) * out == places
    assert _conv.operations(batch, lengths, filters, channels, out) == count


@pytest.mark.live
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "uint8"])
def test_products_are_right_in_every_type(dtype: str) -> None:
    found = document(Matmul, {"n": 48, "dtype": dtype})
    assert found.failed_checks == ()
    assert found.checks["error_eps"] < 3
    assert found.results["rate_gflops"] == pytest.approx((2 * 48**3 - 48**2) / found.results["elapsed_ms"] / 1e6)


@pytest.mark.live
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("stride", [1, 2, 3])
def test_convolutions_are_right_in_every_type_and_stride(dtype: str, stride: int) -> None:
    found = document(Conv2d, {"height": 13, "width": 11, "dtype": dtype, "stride": stride, "filter_height": 2})
    assert found.failed_checks == ()


@pytest.mark.live
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "int32"])
def test_orders_are_right_in_every_type(dtype: str) -> None:
    sort, order = (document(indicator, {"dtype": dtype, "n": 5_000}) for indicator in (Sort, Argsort))
    assert sort.failed_checks == order.failed_checks == ()
    # float32 has 8 million values: some numbers come twice, and the order of equal ones must not matter.
    assert sort.checks["answer_digest"] == order.checks["answer_digest"]


@pytest.mark.live
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("function", ["sin", "exp"])
def test_numpys_functions_are_within_four_units_as_it_promises(function: str, dtype: str) -> None:
    found = document(Ufunc, {"function": function, "dtype": dtype, "most_ulp": 4.0})
    assert found.failed_checks == ()
    assert 0.4 < found.checks["error_ulp"] < 4


@pytest.mark.live
def test_the_accepted_error_is_the_users() -> None:
    fault = "real = numpy.sin\nnumpy.sin = lambda x: real(x) * (1 + 2**-51)"
    assert spoiled(Ufunc, "numpy", fault, {"n": 1000, "most_ulp": 8.0}).failed_checks == ()
    (sentence,) = spoiled(Ufunc, "numpy", fault, {"n": 1000, "most_ulp": 1.5}).failed_checks
    assert sentence.endswith(" ULP, at most 1.5 ULP is allowed")


def decimal_of(name: str, x: float) -> Decimal:
    """sin or exp by another way: the decimal module, 80 digits."""
    with localcontext() as context:
        context.prec = 80
        exact = Decimal(x)
        if name == "exp":
            return exact.exp()
        total = term = exact
        for k in range(1, 90):
            term = -term * exact * exact / ((2 * k) * (2 * k + 1))
            total += term
        return total


@settings(max_examples=60, deadline=None)
@given(
    x=st.floats(min_value=-8, max_value=8, allow_subnormal=False).filter(lambda x: x == 0 or abs(x) > 1e-10),
    name=st.sampled_from(["sin", "exp"]),
)
def test_the_true_value_is_true_to_fifty_digits(x: float, name: str) -> None:
    with localcontext() as context:
        context.prec = 90
        found = Decimal(_errors.exact(name, x)) / Decimal(2) ** 240
        assert abs(found - decimal_of(name, x)) < Decimal(10) ** -50


def test_an_error_is_told_in_units_in_the_last_place() -> None:
    inputs = [0.5, 1.0, 2.0, 3.0]
    right = [math.sin(x) for x in inputs]
    assert _errors.of_function("sin", inputs, right, "float64") < 0.6
    for steps in (1, 2, 5):
        found = list(right)
        for _ in range(steps):
            found[2] = math.nextafter(found[2], 2)
        assert steps - 0.6 < _errors.of_function("sin", inputs, found, "float64") < steps + 0.6
    single = [struct.unpack("f", struct.pack("f", value))[0] for value in right]
    assert _errors.of_function("sin", inputs, single, "float32") <= 0.5
    assert _errors.of_function("sin", [0.0], [0.0], "float64") == 0.0
    assert _errors.of_function("sin", [0.0], [1e-300], "float64") == _errors.BAD


def test_one_wrong_value_among_many_is_found() -> None:
    inputs = [value * 16 for value in _measure.uniform(50_000, 1)]
    found = [math.exp(x) for x in inputs]
    assert _errors.of_function("exp", inputs, found, "float64") < 1
    found[31_337] *= 1 + 2**-51
    assert _errors.of_function("exp", inputs, found, "float64") > 2


@pytest.mark.parametrize("shape", [(1,), (5, 7), (2, 3, 4), (64, 64), (1, 1)])
def test_places_to_check_have_the_corners_and_lie_inside(shape: tuple[int, ...]) -> None:
    places = list(_errors.places(shape, 16))
    assert len(places) == min(16, math.prod(shape)) == len(set(places))
    assert places[0] == tuple(0 for _ in shape)
    assert places[-1] == tuple(length - 1 for length in shape)
    assert all(0 <= at < length for place in places for at, length in zip(place, shape, strict=True))


@pytest.mark.parametrize(
    ("dtype", "wraps", "found", "left", "right", "wrong"),
    [
        ("uint8", 8, 44, [15, 15], [10, 10], 0),
        ("uint8", 8, 300, [15, 15], [10, 10], 1),
        ("int32", 32, -(2**31), [2**30], [2], 0),
        ("int32", 32, 2**31, [2**30], [2], 1),
        ("int32", 32, -6, [2, -3], [3, 4], 0),
    ],
)
def test_whole_numbers_wrap_around(
    dtype: str, wraps: int, found: int, left: list[int], right: list[int], wrong: int
) -> None:
    assert _errors.of_dots([(found, left, right)], dtype, wraps) == {"error_eps": 0.0, "wrong": wrong}


def test_misplaced_numbers_are_counted() -> None:
    assert _ordering.misplaced([1, 2, 3], [1, 2, 3]) == 0
    assert _ordering.misplaced([1, 2, 3], [1, 3, 2]) == 2
    assert _ordering.misplaced([1, 2, 3], [1, 2]) == 1
    assert _ordering.misplaced([1, 2, 3], [1, 2, 3, 4]) == 1
    assert _ordering.misplaced([1.0], [math.nan]) == 1


@pytest.mark.parametrize("gzip", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 1_000])
def test_the_parquet_file_is_read_by_three_readers(tmp_path: Any, rows: int, gzip: bool) -> None:
    import duckdb
    import polars as pl
    import pyarrow.parquet as pq

    columns = {"id": [k * 7 - 3 for k in range(rows)], "value": [k / 8 for k in range(rows)]}
    columns |= {"word": [f"wörd-{k}" for k in range(rows)], **{f"column_{k}": [2**62 - k] * rows for k in range(40)}}
    path = tmp_path / "table.parquet"
    path.write_bytes(_parquet.written(columns, gzip=gzip))
    assert pl.read_parquet(path).to_dict(as_series=False) == columns
    assert pq.read_table(path).to_pydict() == columns
    assert duckdb.sql(f"SELECT * FROM '{path}'").fetchall() == list(zip(*columns.values(), strict=True))
