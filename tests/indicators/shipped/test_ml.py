"""TensorFlow and JAX: the same input, right answers, and what they cannot do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.indicators.shipped import ml
from tests.indicators.shipped.making import document
from workbench.core.errors import RunFailedError
from workbench.indicators.contract.indicator import Indicator
from workbench.indicators.shipped.indicator_classes import (
    Argsort,
    Conv1d,
    Conv2d,
    Hello,
    ImportTime,
    Matmul,
    Sort,
    Ufunc,
)

pytestmark = [pytest.mark.network, pytest.mark.timeout(1_200)]


@pytest.fixture(scope="module", params=sorted(ml.REQUIREMENTS))
def framework(request: pytest.FixtureRequest) -> tuple[str, Path]:
    try:
        return request.param, ml.python_with(request.param)
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("indicator", [Matmul, Conv1d, Conv2d, Sort, Argsort, Ufunc, Hello, ImportTime])
def test_input_is_numpys_and_the_answer_is_right(indicator: type[Indicator], framework: tuple[str, Path]) -> None:
    name, python = framework
    found, numpys = document(indicator, {"framework": name}, python), document(indicator, {"framework": "numpy"})
    assert (found.failed_checks, found.component) == ((), name)
    assert found.results["elapsed_ms"] > (1 if indicator in (Hello, ImportTime) else 0)
    for digest in ("input_digest", "answer_digest"):
        assert found.checks.get(digest) == numpys.checks.get(digest)


@pytest.mark.parametrize(
    ("indicator", "given"),
    [
        (Conv2d, {"stride": 3, "height": 20, "width": 17, "dtype": "float16"}),
        (Conv1d, {"stride": 2, "width": 50, "dtype": "float64"}),
        (Matmul, {"n": 40, "dtype": "int32"}),
    ],
)
def test_other_shapes_and_types_are_right(
    indicator: type[Indicator], given: dict[str, Any], framework: tuple[str, Path]
) -> None:
    name, python = framework
    assert document(indicator, {"framework": name, **given}, python).failed_checks == ()


def test_a_missing_gpu_and_a_type_that_cannot_be_multiplied_are_told(framework: tuple[str, Path]) -> None:
    name, python = framework
    with pytest.raises(RunFailedError, match=r"(?s)exit code 2.*Matmul: \w+ finds no gpu"):
        document(Matmul, {"framework": name, "device": "gpu"}, python)
    if name == "tensorflow":
        with pytest.raises(RunFailedError, match=r"(?s)exit code 2.*Matmul: tensorflow cannot do this: "):
            document(Matmul, {"framework": name, "dtype": "uint8"}, python)
