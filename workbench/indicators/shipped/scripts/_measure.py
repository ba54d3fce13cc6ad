"""What the shipped scripts share: parameters in, a timing loop, one JSON document out.

It lies beside the script and runs with the stack's own Python: standard library only, from Python 3.9 on.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

MOST_SAMPLES = 1000
_CHUNK = 1 << 20
"""Random words that are drawn at once."""
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "POLARS_MAX_THREADS",
    "TF_NUM_INTRAOP_THREADS",
    "TF_NUM_INTEROP_THREADS",
    "NPROC",  # XLA's pool, as jax starts it
)


class RefusedError(Exception):
    """What was asked for cannot be measured here; the script ends with exit code 2 and this sentence on stderr."""


class Run:
    """One run of one script: what it was asked, and what it found."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.framework = "python"
        self.parameters: dict[str, Any] = {}
        self.results: dict[str, Any] = {}
        self.checks: dict[str, Any] = {}
        self.samples: dict[str, list[float]] = {}
        self.cpu: dict[str, float] = {}
        self.build: dict[str, Any] = {}
        self.threads = _whole("PI_THREADS", os.environ.get("PI_THREADS", "0"), 0)

    def whole(self, name: str, default: int, low: int = 0) -> int:
        """A parameter that is a whole number."""
        variable = "PI_" + name.upper()
        self.parameters[name] = value = _whole(variable, os.environ.get(variable, str(default)), low)
        return value

    def number(self, name: str, default: float) -> float:
        """A parameter that is a number."""
        variable = "PI_" + name.upper()
        text = os.environ.get(variable, str(default))
        try:
            self.parameters[name] = value = float(text)
        except ValueError:
            self.refuse(f"{variable} is {text[:60]!r}; a number is needed")
        return value

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """A parameter that is one of some words; the first is its default."""
        variable = "PI_" + name.upper()
        value = os.environ.get(variable, choices[0])
        if value not in choices:
            self.refuse(f"{variable} is {value[:60]!r}; allowed: {', '.join(choices)}")
        self.parameters[name] = value
        return value

    def refuse(self, reason: str) -> NoReturn:
        """End: this cannot be measured here."""
        raise RefusedError(reason)

    def load(self, module: str) -> Any:
        """Import what is measured; thread counts and devices are settled before, because libraries read them then."""
        self.framework = module
        if self.threads:
            for variable in _THREADS:
                os.environ.setdefault(variable, str(self.threads))
        if self.parameters.get("device", "cpu") == "cpu":
            os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
        try:
            package = importlib.import_module(module)
        except ImportError as error:
            raise RefusedError(f"{module} cannot be imported: {str(error)[:200]}") from error
        self.build["version"] = str(getattr(package, "__version__", "unknown"))
        return package

    def first(self, work: Callable[[], Any]) -> Any:
        """What `work` gives, once, outside the clock; refused where the framework cannot do it."""
        try:
            return work()
        except Exception as error:
            message = " ".join(str(error).split())[:200]
            raise RefusedError(f"{self.framework} cannot do this: {type(error).__name__}: {message}") from error

    def time(self, work: Callable[[], Any]) -> float:
        """Call `work` again and again: warm-up first, then `reps` times on the clock; `elapsed_ms` is the median.

        `@cpu` gets the mean CPU time of all threads of this process, which other load on the machine hardly changes.

        The collector of garbage is off meanwhile: it would run at moments that depend on what was done before.
        """
        warmup, reps = self.whole("warmup", 3), self.whole("reps", 20, 1)
        if reps > MOST_SAMPLES:
            self.refuse(f"PI_REPS is {reps}; at most {MOST_SAMPLES}")
        for _ in range(warmup):
            work()
        clock = time.perf_counter_ns
        durations_ns = []
        gc.collect()
        gc.disable()
        # Around all repetitions: the clock of CPU time is too coarse for a short one on some systems.
        begun = time.process_time_ns()
        try:
            for _ in range(reps):
                start = clock()
                work()
                durations_ns.append(clock() - start)
        finally:
            used = time.process_time_ns() - begun
            gc.enable()
        self.cpu["elapsed_ms"] = used / 1e6 / reps
        self.samples["elapsed_ms"] = [value / 1e6 for value in durations_ns]
        self.results["elapsed_ms"] = elapsed = median(self.samples["elapsed_ms"])
        return elapsed

    def document(self) -> dict[str, Any]:
        """What is printed."""
        if self.threads:
            self.build["threads"] = self.threads
        return {
            "name": self.name,
            "framework": self.framework,
            "@parameters": self.parameters,
            "@result": self.results,
            "@checks": self.checks,
            "@samples": self.samples,
            "@cpu": self.cpu,
            self.framework + "_buildinfo": self.build,
        }


def main(name: str, measure: Callable[[Run], None]) -> None:
    """Measure, and print the document: alone on stdout, whatever libraries print there meanwhile."""
    out = os.dup(1)
    os.dup2(2, 1)
    try:
        run = Run(name)
        measure(run)
        text = json.dumps(run.document(), allow_nan=False)
    except RefusedError as error:
        sys.stderr.write(f"{name}: {error}\n")
        sys.exit(2)
    with os.fdopen(out, "w", encoding="utf-8") as file:
        file.write(text + "\n")


def median(values: Sequence[float]) -> float:
    """The middle value; the mean of the two middle ones."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def uniform(count: int, seed: int, bits: int = 52) -> array[float]:
    """Random numbers in [-0.5, 0.5), the same everywhere: only the standard generator's bits are used.

    A number has `bits` random bits below 1, so that a type with as many holds it exactly (52 float64, 23 float32,
    10 float16): then every framework gets the same input, without rounding.
    """
    mantissa = ((1 << bits) - 1) << (52 - bits)
    numbers = array("d")
    for words in _patterned(count, seed, mantissa, 0x3FF << 52):
        # What the bits say lies in [1, 2); this subtraction is exact.
        numbers.extend([value - 1.5 for value in array("d", words)])
    return numbers


def wholes(count: int, seed: int, bits: int) -> array[int]:
    """Random whole numbers in [0, 2**bits), the same everywhere."""
    numbers = array("q")
    for words in _patterned(count, seed, (1 << bits) - 1, 0):
        numbers.frombytes(words)
    return numbers


def digest(values: Iterable[Any], kind: str = "d") -> str:
    """Sixteen hex digits that stand for these numbers (`d`: doubles, `q`: whole ones) in this order."""
    import hashlib

    numbers = array(kind, values)
    if sys.byteorder == "big":
        numbers.byteswap()
    return hashlib.sha256(numbers.tobytes()).hexdigest()[:16]


def _patterned(count: int, seed: int, mask: int, ones: int) -> Iterator[bytes]:
    """`count` random words of 64 bits, masked, with bits set: arithmetic on large numbers is quick enough.

    In chunks: the generator gives at most 2**31 - 1 bits at once. The bits are the same in chunks of any size.
    """
    import random

    def repeated(word: int, times: int) -> int:
        return int.from_bytes(word.to_bytes(8, "little") * times, "little")

    # The generator's bits for a seed are one of the things that Python keeps between its versions.
    generator = random.Random(seed)  # noqa: S311
    for begin in range(0, count, _CHUNK):
        size = min(_CHUNK, count - begin)
        bits = generator.getrandbits(64 * size)
        chunk = ((bits & repeated(mask, size)) | repeated(ones, size)).to_bytes(8 * size, "little")
        if sys.byteorder == "big":
            words = array("Q", chunk)
            words.byteswap()
            chunk = words.tobytes()
        yield chunk


def _whole(variable: str, text: str, low: int) -> int:
    try:
        number = int(text)
    except ValueError:
        raise RefusedError(f"{variable} is {text[:60]!r}; a whole number is needed") from None
    if number < low:
        raise RefusedError(f"{variable} is {number}; at least {low}")
    return number
