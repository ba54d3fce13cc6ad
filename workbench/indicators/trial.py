"""Try an indicator once, with this interpreter: does its script give a document that its declaration takes?"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import InputError, RunFailedError
from workbench.indicators import legacy
from workbench.indicators.contract import Indicator
from workbench.indicators.documents import Document, DocumentError, checked, decoded
from workbench.indicators.running.process import clean_environment

MOST_STDERR = 2_000


def tried(
    indicator: type[Indicator],
    parameters: Mapping[str, Any] | None = None,
    *,
    python: str | Path | None = None,
    timeout_s: float = 120,
) -> Document:
    """What the script of an indicator prints, checked.

    For whoever writes an indicator: once, in a folder of its own, one thread for libraries. No stack, no rounds, no
    limits but time: nothing may be concluded from its figures, and it is for scripts that you trust.

    Parameters
    ----------
    indicator, parameters
        What to run; parameters that are not given have their defaults.
    python
        The interpreter; this one's by default.
    timeout_s
        Time limit, in seconds.

    Raises
    ------
    ConfigError
        A parameter that is none, or out of bounds; no script.
    RunFailedError
        The script cannot be started, ends with another exit code than 0, or takes too long.
    InputError
        What it prints is no document of this indicator.

    Examples
    --------
    >>> from typing import ClassVar
    >>> from workbench.indicators.contract import parameter, result
    >>> class Half(Indicator):
    ...     '''Half of n.'''
    ...     script: ClassVar[str] = '''
    ... import json, os
    ... n = int(os.environ["PI_N"])
    ... print(json.dumps({"name": "Half", "@parameters": {"n": n}, "@result": {"half": n / 2}}))
    ... '''
    ...     n: int = parameter(10)
    ...     half: float = result(unit="")
    >>> tried(Half, {"n": 7}).results
    {'half': 3.5}
    """
    asked = indicator.parameters(parameters)
    stdout = _run(indicator, indicator.environment(asked), str(python or sys.executable), timeout_s)
    try:
        return checked(legacy.named_right(decoded(stdout), indicator), indicator, asked)
    except DocumentError as error:
        raise InputError(
            "the script ran, but what it printed is no document of this indicator",
            where=f"indicator {indicator.__name__}",
            found=f"{error.status}: {error.reason}",
            do="print one JSON object on stdout: name, @parameters, @result, and @checks where some are declared",
        ) from None


def _run(indicator: type[Indicator], variables: Mapping[str, str], python: str, timeout_s: float) -> bytes:
    where = f"indicator {indicator.__name__}"
    with tempfile.TemporaryDirectory() as folder:
        for name, text in indicator.sources().items():
            (Path(folder) / name).write_text(text, encoding="utf-8")
        try:
            done = subprocess.run(  # noqa: S603  (the user's own script, by the user's interpreter)
                [python, "-s", "-B", "script.py"],
                cwd=folder,
                env={"HOME": folder, "TMPDIR": folder, **clean_environment(1, variables)},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise RunFailedError("the script took too long", where=where, allowed=f"{timeout_s:g} s") from None
        except OSError as error:
            raise RunFailedError("the script cannot be started", where=where, found=error.strerror) from None
    if done.returncode:
        told = done.stderr.decode("utf-8", "replace").strip()[-MOST_STDERR:]
        raise RunFailedError(f"the script ended with exit code {done.returncode}", where=where, found=told or None)
    return done.stdout
