"""Shipped indicators: array, table and interpreter benchmarks, the same for every framework; loading one by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Literal

from workbench.core import nvml
from workbench.core.errors import ConfigError
from workbench.core.user_code import import_user_module
from workbench.indicators.compat_thoth import thoth_indicators
from workbench.indicators.contract.indicator import Case, Indicator, Value, check, parameter, result

SCRIPTS = Path(__file__).parent / "scripts"
ALTERNATIVES = {
    "tensorflow": "tensorflow|tensorflow-cpu|tensorflow-gpu|tensorflow-intel|tensorflow-cpu-aws|intel-tensorflow",
    "cupy": "cupy|cupy-cuda11x|cupy-cuda12x|cupy-cuda13x",
}
"""Frameworks that come in packages of several names."""
ArrayFramework = Literal["numpy", "torch", "tensorflow", "jax", "cupy"]
Device = Literal["cpu", "gpu", "auto"]
MAX_EPS = 16.0
FrameFramework = Literal["pandas", "polars"]


def list_helper_files(*names: str) -> dict[str, Path]:
    """The files that lie beside a script: `_measure.py`, and those of these names; with `_arrays` what it imports."""
    files = {f"{name}.py": SCRIPTS / f"{name}.py" for name in ("_measure", *names)}
    return files | ({"_nvml.py": Path(nvml.__file__)} if "_arrays" in names else {})


class Shipped(Indicator):
    """An indicator with a parameter `framework`: a stack must have it. `elapsed_ms` is what is compared."""

    elapsed_ms: float = result(unit="ms", better="lower", ge=0, about="How long it took.")

    @classmethod
    def needs(cls, parameters: Mapping[str, Value]) -> tuple[str, ...]:
        """The framework's package, by any of its names, and what `requires` has beside; Python itself is no package."""
        framework = str(parameters["framework"])
        packages = () if framework == "python" else (ALTERNATIVES.get(framework, framework),)
        return (*packages, *super().needs(parameters))


class Timed(Shipped):
    """The work is repeated in one process; `elapsed_ms` is the median. Stacks are compared over processes, not these.

    The spread between processes is several times the one within: more repeats do not make a result surer, more runs
    do.
    """

    seed: int = parameter(0, ge=0, le=2**31, about="Start of the random input; the same input in every framework.")
    warmup: int = parameter(3, ge=0, le=1_000, about="Calls before the clock starts.")
    reps: int = parameter(20, ge=1, le=1_000, about="Calls on the clock.")


class OnDevice(Timed):
    """Base of indicators with a framework, a device, and a digest that shows that all had the same input.

    On a GPU the time is that of a call and the wait for its result; `device_ms` is the work alone, by the GPU's clock.
    """

    framework: ArrayFramework = parameter("numpy", about="Who computes.")
    device: Device = parameter(
        "cpu", about="Where; a missing gpu ends the script with exit code 2. auto: on a gpu where there is one."
    )
    device_ms: float | None = result(
        unit="ms",
        better="lower",
        ge=0,
        derived=True,
        optional=True,
        about="Time of one of many calls in line, by the device's own clock; null on the cpu.",
    )
    input_digest: str = check(about="Digest of the input in the framework's own form.")


class Multiplying(OnDevice):
    """Products and sums in floating point: a rate, and a bound on the error.

    Errors are told in units of the type's epsilon times the sum of the sizes of the products: a few for honest
    rounding in this type, hundreds where inputs were cut to a shorter type to be quicker (TF32, bfloat16). Inputs of
    `tfloat32` and `bfloat16` have no more bits than these types hold.
    """

    rate_gflops: float = result(
        unit="GFLOP/s", better="higher", derived=True, ge=0, about="Additions and multiplications, a second."
    )
    error_eps: float = check(at_most=MAX_EPS, unit="eps", about="Largest error of the elements that are checked.")
    wrong: int = check(equals=0, about="Checked elements beyond that bound, or, of whole numbers, not equal.")


class Matmul(Multiplying):
    """How long does one product of two square matrices take?

    2 n^3 - n^2 operations: each of n^2 elements is a sum of n products. Inputs are random in [-0.5, 0.5); whole numbers
    are below 16 and may wrap around. 64 elements, corners among them, are held against exact sums.
    Does not show: other shapes, batches, or the elements that are not checked.
    """

    script: ClassVar[Path | str] = SCRIPTS / "matmul.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files("_arrays", "_errors")
    n: int = parameter(512, ge=1, le=20_000, about="Rows and columns.")
    dtype: Literal["float32", "float64", "float16", "bfloat16", "tfloat32", "int32", "uint8"] = parameter(
        "float32", about="Type of elements."
    )


class Convolving(Multiplying):
    """Base of convolutions. No padding: that setting means the same in every framework. No bias.

    Batch x places x channels out elements, each a sum of K products: 2 K - 1 operations, where K is the size of the
    filter times the channels in. NumPy has no convolution: its windows times the filters, as one product.
    64 elements are held against exact sums. Does not show: padding, dilation, groups, gradients.
    """

    dtype: Literal["float32", "float64", "float16", "bfloat16", "tfloat32"] = parameter(
        "float32", about="Type of elements."
    )
    channels: int = parameter(16, ge=1, le=4_096, about="Channels in.")
    output_channels: int = parameter(32, ge=1, le=4_096, about="Channels out.")
    stride: int = parameter(1, ge=1, le=64, about="Steps of the filter.")


class Conv1d(Convolving):
    """How long does one convolution over signals take?"""

    script: ClassVar[Path | str] = SCRIPTS / "conv1d.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files("_arrays", "_errors", "_conv")
    batch: int = parameter(8, ge=1, le=4_096, about="Signals at once.")
    width: int = parameter(1_024, ge=1, le=1_000_000, about="Length of a signal.")
    filter_width: int = parameter(5, ge=1, le=1_024, about="Length of a filter.")


class Conv2d(Convolving):
    """How long does one convolution over images take?"""

    script: ClassVar[Path | str] = SCRIPTS / "conv2d.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files("_arrays", "_errors", "_conv")
    channels: int = parameter(8, ge=1, le=4_096, about="Channels in.")
    batch: int = parameter(4, ge=1, le=4_096, about="Images at once.")
    height: int = parameter(64, ge=1, le=10_000, about="Rows of an image.")
    width: int = parameter(64, ge=1, le=10_000, about="Columns of an image.")
    filter_height: int = parameter(3, ge=1, le=256, about="Rows of a filter.")
    filter_width: int = parameter(3, ge=1, le=256, about="Columns of a filter.")


class Ordering(OnDevice):
    """Base of sorting and finding an order: random numbers, and the one right order of them."""

    n: int = parameter(100_000, ge=1, le=100_000_000, about="How many numbers.")
    wrong: int = check(equals=0, about="Places that differ from the order that Python's own sort gives.")
    answer_digest: str = check(about="Digest of the sorted numbers.")


class Sort(Ordering):
    """How long does it take to sort random numbers?

    A copy is sorted, not the input in place. Does not show: nearly sorted input, many equal numbers, texts.
    """

    script: ClassVar[Path | str] = SCRIPTS / "sort.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files("_arrays", "_ordering")
    dtype: Literal["float64", "float32", "int64", "int32"] = parameter("float64", about="Type of numbers.")


class Argsort(Ordering):
    """How long does it take to find the order of random numbers, without moving them?

    Equal numbers may come in either order: the numbers in that order are checked, and that no place comes twice.
    Does not show: stable sorting, nearly sorted input.
    """

    script: ClassVar[Path | str] = SCRIPTS / "argsort.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files("_arrays", "_ordering")
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
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files("_arrays", "_errors")
    function: Literal["sin", "exp"] = parameter("sin", named=True, about="Which function.")
    n: int = parameter(100_000, ge=1, le=100_000_000, about="How many numbers.")
    dtype: Literal["float64", "float32"] = parameter("float64", about="Type of numbers.")
    most_ulp: float = parameter(1.0, gt=0, le=1e6, unit="ULP", about="Largest error that is accepted.")
    error_ulp: float = check(at_most="most_ulp", unit="ULP", about="Largest error.")


class OnTables(Timed):
    """Base of indicators with the input's digest, the answer's digest, and a comparison with plain Python's answer."""

    framework: FrameFramework = parameter("pandas", about="Who computes.")
    input_digest: str = check(about="Digest of the input.")
    wrong: int = check(equals=0, about="Rows, or values, that differ from the right answer.")
    answer_digest: str = check(about="Digest of the answer, with its rows sorted.")


class GroupBy(OnTables):
    """How long do sum, maximum and count by key take?

    Keys are whole numbers; values are short fractions, whose sums are exact in any order: the right answer is one
    answer. Does not show: several keys, texts as keys, nulls.
    """

    script: ClassVar[Path | str] = SCRIPTS / "groupby.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files("_frames")
    n: int = parameter(100_000, ge=1, le=100_000_000, about="Rows.")
    groups: int = parameter(1_000, ge=1, le=100_000_000, about="Keys, about.")


class Join(OnTables):
    """How long does an inner join on a whole number take?

    About half of the rows of the left table have a partner, exactly one. Does not show: several partners, other
    kinds of join, texts as keys, nulls.
    """

    script: ClassVar[Path | str] = SCRIPTS / "join.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files("_frames")
    n: int = parameter(50_000, ge=1, le=100_000_000, about="Rows of the left table.")
    partners: int = parameter(10_000, ge=1, le=100_000_000, about="Rows of the right table.")


class ReadCsv(OnTables):
    """How long does it take to read a CSV file of whole numbers, fractions and words?

    The file is in memory already. Does not show: the disk, quotes, dates, nulls, fractions of 16 digits and more.
    """

    script: ClassVar[Path | str] = SCRIPTS / "read_csv.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files("_frames", "_reading")
    rows: int = parameter(20_000, ge=1, le=10_000_000, about="Rows.")


class ReadParquet(OnTables):
    """How long does it take to read a Parquet file of whole numbers, fractions and words?

    The same bytes for every stack: one row group, plain pages. The file is in memory already. pandas reads with
    pyarrow. Does not show: the disk, dictionaries, nulls, skipping by statistics, many row groups.
    """

    script: ClassVar[Path | str] = SCRIPTS / "read_parquet.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files("_frames", "_reading", "_parquet")
    rows: int = parameter(50_000, ge=1, le=10_000_000, about="Rows.")
    compression: Literal["none", "gzip"] = parameter("none", about="How pages are compressed.")

    @classmethod
    def needs(cls, parameters: Mapping[str, Value]) -> tuple[str, ...]:
        """The framework, and for pandas the library that reads Parquet for it."""
        packages = super().needs(parameters)
        return (*packages, "pyarrow") if parameters["framework"] == "pandas" else packages


class ImportTime(Shipped):
    """How long does the import of a library take, in a fresh process?

    Modules of the standard library that the script itself uses (such as json) are there already. The files come from
    memory after the first run. Does not show: the interpreter's start, or a first import from a cold disk.
    """

    script: ClassVar[Path | str] = SCRIPTS / "import_time.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files()
    framework: Literal[
        "numpy", "pandas", "polars", "torch", "tensorflow", "jax", "scipy", "scikit-learn", "pyarrow"
    ] = parameter("numpy", about="The library that is imported.")
    modules: int = result(unit="modules", about="Modules that were imported with it.")


class Hello(Shipped):
    """How long until a library has made and shown its first value, once it is imported?

    Once in a fresh process, without warm-up: what a library puts off until it is used, it does here (jax and
    tensorflow start their devices). Does not show: the import itself.
    """

    script: ClassVar[Path | str] = SCRIPTS / "hello.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files()
    framework: Literal["numpy", "pandas", "polars", "torch", "tensorflow", "jax"] = parameter(
        "numpy", about="The library that says hello."
    )
    elapsed_ms: float = result(
        unit="ms", better="lower", tolerance=0.05, ge=0, about="From the first call until the value was shown."
    )
    wrong: int = check(equals=0, about="1 if the value that was shown is not the right one.")


class ScalarLoop(Timed):
    """How long does a Python loop take that reads numbers one by one and adds 1 to each?

    `framework` is who holds the numbers: `python` is a list, so that the interpreter alone is measured. Does not show:
    anything of how quick a library is at what it is made for.
    """

    script: ClassVar[Path | str] = SCRIPTS / "scalar_loop.py"
    files: ClassVar[Mapping[str, Path | str]] = list_helper_files()
    framework: Literal["numpy", "python", "torch", "pandas", "polars"] = parameter(
        "numpy", about="Who holds the numbers."
    )
    n: int = parameter(5_000, ge=1, le=10_000_000, about="How many numbers.")
    input_digest: str = check(about="Digest of the input.")
    wrong: int = check(equals=0, about="Wrong numbers.")


def list_shipped_indicators() -> tuple[type[Indicator], ...]:
    """The indicators that come with the workbench."""
    return (
        Matmul,
        Conv1d,
        Conv2d,
        Sort,
        Argsort,
        Ufunc,
        GroupBy,
        Join,
        ReadCsv,
        ReadParquet,
        ScalarLoop,
        ImportTime,
        Hello,
    )


def load_indicator(name: str) -> type[Indicator]:
    """The indicator that a user means.

    `name`: `matmul`, `group-by`, `GroupBy`: a shipped one, in any spelling; `PiMatmul`: one of the old contract;
    `module:Class`: of an importable module; `file.py:Class` (or `file.py`, when it declares one only): of a file.
    Naming a module or a file runs it.

    >>> load_indicator("group-by").__name__, load_indicator("PiMatmul").__name__
    ('GroupBy', 'PiMatmul')
    """
    source, _, wanted = (
        name.rpartition(":") if ":" in name else (name, "", "") if name.endswith(".py") else ("", "", "")
    )
    if source:
        try:
            module = import_user_module(source)
        except Exception as error:
            message = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise ConfigError("cannot be imported", where=name[:120], found=message) from error
        return _find_declared_class(module, wanted, name)
    by_name = {
        _fold_name(indicator.__name__): indicator
        for indicator in (*list_shipped_indicators(), *thoth_indicators.MODELS)
    }
    with contextlib.suppress(KeyError):
        return by_name[_fold_name(name)]
    raise ConfigError(
        "no indicator of this name",
        where="indicator",
        found=name[:80],
        allowed=[
            *(indicator.__name__ for indicator in (*list_shipped_indicators(), *thoth_indicators.MODELS)),
            "module:Class",
            "file.py:Class",
        ],
    )


def parse_case(text: str) -> Case:
    """The case that a user wrote: `NAME` or `NAME:parameter=value,parameter=value`.

    >>> parse_case("matmul:framework=torch,n=256").label
    'Matmul[framework=torch,n=256]'
    >>> parse_case("sort").label
    'Sort'
    """
    name, _, assignments = text.rpartition(":") if "=" in text.rpartition(":")[2] else (text, "", "")
    if not name:
        raise ConfigError("no indicator is named", where=text[:80], allowed="NAME or NAME:parameter=value,…")
    return Case.from_parameters(load_indicator(name), dict(_parse_pairs(assignments, text)))


def _parse_pairs(text: str, where: str) -> Iterator[tuple[str, Any]]:
    seen = set()
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError("not a parameter and its value", where=where[:80], found=part[:60], allowed="name=value")
        if key in seen:
            raise ConfigError("a parameter twice", where=where[:80], found=key[:60])
        seen.add(key)
        yield key, value.strip()


def _fold_name(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def _find_declared_class(module: ModuleType, wanted: str, name: str) -> type[Indicator]:
    classes = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, Indicator) and value.__module__ == module.__name__
    }
    if not wanted and len(classes) == 1:
        return next(iter(classes.values()))
    if wanted in classes:
        return classes[wanted]
    value = getattr(module, wanted, None) if wanted else None
    if isinstance(value, type) and issubclass(value, Indicator) and value is not Indicator:
        return value
    raise ConfigError(
        "no such indicator there" if wanted else "name one indicator: the file has none or several",
        where=name[:120],
        found=wanted[:80] or None,
        allowed=", ".join(classes) or "the module declares none",
    )
