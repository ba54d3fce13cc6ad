"""The skeleton of a new indicator: declaration, script and test, which run as they are."""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass
from pathlib import Path

from workbench import files
from workbench.errors import ConfigError, InputError

_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]+)*")
_LONGEST = 40

DECLARATION = '''"""The indicator @CLASS@: what it reads, what it prints, what is better."""

from pathlib import Path
from typing import ClassVar

from workbench.indicators.contract import Indicator, check, parameter, result


class @CLASS@(Indicator):
    """How long does it take to sort random numbers? (Say what yours measures, then what it does not show.)"""

    script: ClassVar[Path | str] = Path(__file__).with_name("@STEM@_script.py")
    # Packages that a stack must have, such as ("numpy",); stacks without them are left out.
    requires: ClassVar[tuple[str, ...]] = ()

    # The script reads each parameter from an environment variable: n from PI_N. Keep them few; each combination
    # of values is a case of its own.
    n: int = parameter(10_000, ge=1, about="How many numbers.")
    seed: int = parameter(0, ge=0, about="Start of the random input.")
    reps: int = parameter(20, ge=1, le=1_000, about="Calls on the clock.")

    # A result has a unit, a direction, and a tolerance: differences within it (0.02 is 2 %) do not matter.
    elapsed_ms: float = result(unit="ms", better="lower", ge=0, tolerance=0.02, about="Median of the calls.")
    # Kept, but not compared: it follows from the result above.
    rate: float = result(unit="numbers/s", better="higher", derived=True, ge=0)

    # A stack whose answer is wrong is never recommended, however fast it is.
    wrong: int = check(equals=0, about="Numbers that are not in their place.")
'''

SCRIPT = '''"""Measures @CLASS@. Runs alone, with a stack's Python: the workbench is not installed there."""

import json
import os
import random
import statistics
import time

n = int(os.environ.get("PI_N", "10000"))
seed = int(os.environ.get("PI_SEED", "0"))
reps = int(os.environ.get("PI_REPS", "20"))

# The same input in every stack: from a seed, by the standard library.
source = random.Random(seed)
numbers = [source.random() for _ in range(n)]


def work():
    return sorted(numbers)


answer = work()  # Warm-up: what is done once is not measured.
samples = []
for _ in range(reps):
    start = time.perf_counter_ns()
    work()
    samples.append((time.perf_counter_ns() - start) / 1e6)
elapsed_ms = statistics.median(samples)

# One JSON document, alone on stdout. What else there is to say goes to stderr.
print(
    json.dumps(
        {
            "name": "@CLASS@",
            "framework": "python",
            "@parameters": {"n": n, "seed": seed, "reps": reps},
            "@result": {"elapsed_ms": elapsed_ms, "rate": n / elapsed_ms * 1e3},
            "@checks": {"wrong": sum(a > b for a, b in zip(answer, answer[1:]))},
            "@samples": {"elapsed_ms": samples},
        }
    )
)
'''

TEST = '''"""Does the script of @CLASS@ give a document that its declaration takes, with the right answer?"""

import subprocess
import sys
from pathlib import Path

from workbench.indicators.documents import checked, decoded
from workbench.indicators.shipped.registry import indicator_named
from workbench.indicators.trial import tried

INDICATOR = indicator_named(f"{Path(__file__).with_name('@STEM@.py')}:@CLASS@")


def test_a_run_gives_a_valid_document_with_a_right_answer() -> None:
    found = tried(INDICATOR, {"n": 100, "reps": 3})
    assert found.parameters["n"] == 100
    assert found.results["elapsed_ms"] > 0
    assert found.failed_checks == ()


def test_the_script_by_hand_has_the_defaults_of_the_declaration() -> None:
    script = Path(__file__).with_name("@STEM@_script.py")
    done = subprocess.run([sys.executable, script], capture_output=True, check=True)
    assert checked(decoded(done.stdout), INDICATOR).parameters == INDICATOR.parameters()
'''


@dataclass(frozen=True)
class Skeleton:
    """What was written: the class's name, its reference, and the paths of declaration, script and test."""

    name: str
    reference: str
    paths: tuple[Path, ...]


def write(name: str, out: Path) -> Skeleton:
    """Write the skeleton of an indicator into a folder.

    Parameters
    ----------
    name
        Its name, such as `FftSize`, `fft-size` or `fft_size`: the class becomes FftSize, the files pi_fft_size*.py.
    out
        The folder; made if it is not there.

    Raises
    ------
    ConfigError
        Not a name, a word of Python's, or the name of an indicator that is there.
    InputError
        One of the files is there already, or the folder cannot be written. Nothing is overwritten.
    """
    words = _words(name)
    stem, title = "pi_" + "_".join(words), "".join(word[0].upper() + word[1:] for word in words)
    _not_reserved(name, title)
    _not_taken(title)
    texts = {f"{stem}.py": DECLARATION, f"{stem}_script.py": SCRIPT, f"test_{stem}.py": TEST}
    if there := [out / file for file in texts if (out / file).exists()]:
        raise InputError("nothing is overwritten", where="new", found=there, do="choose another NAME or --out")
    try:
        for file, text in texts.items():
            files.write_text(out / file, text.replace("@CLASS@", title).replace("@STEM@", stem))
    except OSError as error:
        raise InputError("cannot write there", where=out, found=error.strerror) from None
    return Skeleton(title, f"{out / stem}.py:{title}", tuple(out / file for file in texts))


def _words(name: str) -> list[str]:
    if not _WORD.fullmatch(name) or len(name) > _LONGEST:
        raise ConfigError(
            "not a name for an indicator",
            where="NAME",
            found=name[:60],
            allowed=f"letters and digits, words joined by - or _; at most {_LONGEST} characters",
        )
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_")
    return spaced.lower().split("_")


def _not_reserved(name: str, title: str) -> None:
    """Refuse words of Python's: a class None cannot be, and a class Class is not understood."""
    if keyword.iskeyword(title) or keyword.iskeyword(name.lower()):
        raise ConfigError("a word of Python's", where="NAME", found=name, do=f"choose another name, such as My{title}")


def _not_taken(title: str) -> None:
    from workbench.indicators import legacy
    from workbench.indicators.shipped.registry import shipped

    taken = {one.__name__.lower(): one.__name__ for one in (*shipped(), *legacy.MODELS)}
    if title.lower() in taken:
        raise ConfigError(
            "an indicator of this name is there already",
            where="NAME",
            found=taken[title.lower()],
            do=f"choose another name, such as My{title}",
        )
