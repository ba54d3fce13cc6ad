"""Indicators of frameworks for arrays: products, convolutions, sorting, functions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from workbench.indicators.contract import check, parameter, result
from workbench.indicators.shipped.pieces import SCRIPTS, Timed, helpers

ArrayFramework = Literal["numpy", "torch", "tensorflow", "jax"]
Device = Literal["cpu", "gpu"]
MOST_EPS = 16.0


class OnDevice(Timed):
    """What all of them have: a framework, a device, and a digest that shows that all had the same input."""

    framework: ArrayFramework = parameter("numpy", about="Who computes.")
    device: Device = parameter("cpu", about="Where; a missing gpu ends the script with exit code 2.")
    input_digest: str = check(about="Stands for the input as the framework held it.")


class Multiplying(OnDevice):
    """Products and sums in floating point: a rate, and a bound on the error.

    Errors are told in units of the type's epsilon times the sum of the sizes of the products: a few for honest
    rounding in this type, hundreds where inputs were cut to a shorter type to be quicker (TF32, bfloat16).
    """

    rate_gflops: float = result(
        unit="GFLOP/s", better="higher", derived=True, ge=0, about="Additions and multiplications, a second."
    )
    error_eps: float = check(at_most=MOST_EPS, unit="eps", about="Largest error of the elements that are checked.")
    wrong: int = check(equals=0, about="Checked elements beyond that bound, or, of whole numbers, not equal.")


class Matmul(Multiplying):
    """How long does one product of two square matrices take?

    2 n^3 - n^2 operations: each of n^2 elements is a sum of n products. Inputs are random in [-0.5, 0.5); whole numbers
    are below 16 and may wrap around. 64 elements, corners among them, are held against exact sums.
    Does not show: other shapes, batches, or the elements that are not checked.
    """

    script: ClassVar[Path | str] = SCRIPTS / "matmul.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers("_arrays", "_errors")
    n: int = parameter(512, ge=1, le=20_000, about="Rows and columns.")
    dtype: Literal["float32", "float64", "float16", "int32", "uint8"] = parameter("float32", about="Type of elements.")


class Convolving(Multiplying):
    """What convolutions share. No padding: it is what every framework means the same by; no bias.

    Batch x places x channels out elements, each a sum of K products: 2 K - 1 operations, where K is the size of the
    filter times the channels in. NumPy has no convolution: its windows times the filters, as one product.
    64 elements are held against exact sums. Does not show: padding, dilation, groups, gradients.
    """

    dtype: Literal["float32", "float64", "float16"] = parameter("float32", about="Type of elements.")
    channels: int = parameter(16, ge=1, le=4_096, about="Channels in.")
    output_channels: int = parameter(32, ge=1, le=4_096, about="Channels out.")
    stride: int = parameter(1, ge=1, le=64, about="Steps of the filter.")


class Conv1d(Convolving):
    """How long does one convolution over signals take?"""

    script: ClassVar[Path | str] = SCRIPTS / "conv1d.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers("_arrays", "_errors", "_conv")
    batch: int = parameter(8, ge=1, le=4_096, about="Signals at once.")
    width: int = parameter(1_024, ge=1, le=1_000_000, about="Length of a signal.")
    filter_width: int = parameter(5, ge=1, le=1_024, about="Length of a filter.")


class Conv2d(Convolving):
    """How long does one convolution over images take?"""

    script: ClassVar[Path | str] = SCRIPTS / "conv2d.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers("_arrays", "_errors", "_conv")
    channels: int = parameter(8, ge=1, le=4_096, about="Channels in.")
    batch: int = parameter(4, ge=1, le=4_096, about="Images at once.")
    height: int = parameter(64, ge=1, le=10_000, about="Rows of an image.")
    width: int = parameter(64, ge=1, le=10_000, about="Columns of an image.")
    filter_height: int = parameter(3, ge=1, le=256, about="Rows of a filter.")
    filter_width: int = parameter(3, ge=1, le=256, about="Columns of a filter.")


class Ordering(OnDevice):
    """What sorting and finding an order share: random numbers, and the one right order of them."""

    n: int = parameter(100_000, ge=1, le=100_000_000, about="How many numbers.")
    wrong: int = check(equals=0, about="Places that differ from the order that Python's own sort gives.")
    answer_digest: str = check(about="Stands for the numbers in the order that was found.")


class Sort(Ordering):
    """How long does it take to sort random numbers?

    A copy is sorted, not the input in place. Does not show: nearly sorted input, many equal numbers, texts.
    """

    script: ClassVar[Path | str] = SCRIPTS / "sort.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers("_arrays", "_ordering")
    dtype: Literal["float64", "float32", "int64", "int32"] = parameter("float64", about="Type of numbers.")


class Argsort(Ordering):
    """How long does it take to find the order of random numbers, without moving them?

    Equal numbers may come in either order: the numbers in that order are checked, and that no place comes twice.
    Does not show: stable sorting, nearly sorted input.
    """

    script: ClassVar[Path | str] = SCRIPTS / "argsort.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers("_arrays", "_ordering")
    dtype: Literal["int64", "int32", "float64", "float32"] = parameter("int64", about="Type of numbers.")


class Ufunc(OnDevice):
    """How long does a function of every element take: sin or exp of random numbers in [-8, 8)?

    The error is the distance to the true value in units in the last place; below 1 ULP it is one of the true value's
    two neighbours. Quick code gives up more: with AVX-512, NumPy 1.24's sin is up to 3.1 ULP off, exp before NumPy 2.0
    1.5, float32 functions up to 2.2. `most_ulp` is what you accept. All values are held against the standard
    library's; those farthest off, and others, against values worked out exactly.
    Does not show: large arguments, overflow, tiny numbers, other functions.
    """

    script: ClassVar[Path | str] = SCRIPTS / "ufunc.py"
    files: ClassVar[Mapping[str, Path | str]] = helpers("_arrays", "_errors")
    function: Literal["sin", "exp"] = parameter("sin", named=True, about="Which function.")
    n: int = parameter(100_000, ge=1, le=100_000_000, about="How many numbers.")
    dtype: Literal["float64", "float32"] = parameter("float64", about="Type of numbers.")
    most_ulp: float = parameter(1.0, gt=0, le=1e6, unit="ULP", about="Largest error that is accepted.")
    error_ulp: float = check(at_most="most_ulp", unit="ULP", about="Largest error.")
