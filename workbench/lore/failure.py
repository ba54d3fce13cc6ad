"""What an operator died of, in words that another run of the same operator would give alike."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

MAX_CHARS = 2000
# A Python worker's error ends with the exception's own line; before it stand paths and line numbers.
_PYTHON = "org.apache.spark.api.python.PythonException"
_TASK = re.compile(r"[Ll]ost task (\d+)\.\d+ in stage (\d+)\.(\d+)")


@dataclass(frozen=True)
class Failure:
    """An error: its class, its message without what differs from run to run, and where it came up.

    Attributes
    ----------
    error_class
        Of the innermost cause; of a Python function's error the Python exception's class.
    message
        At most 2,000 characters.
    partition, stage_id
        Of the task that failed; null where Spark names none.
    """

    error_class: str
    message: str
    partition: int | None = None
    stage_id: int | None = None

    def __str__(self) -> str:
        place = "" if self.partition is None else f" (partition {self.partition})"
        return f"{self.error_class}: {self.message}{place}"


def failure_of(error: BaseException) -> Failure:
    """The failure behind an exception that Spark or py4j raised."""
    java = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    text = str(error)
    partition, stage_id = _place(f"{text}\n{java.getMessage() if java is not None else ''}")
    if type(error).__name__ == "PythonException":
        name, message = _python(text)
        return Failure(name, _cleaned(message), partition, stage_id)
    if java is None:
        return Failure(type(error).__name__, _cleaned(text), partition, stage_id)
    cause: Any = java
    while cause.getCause() is not None:
        cause = cause.getCause()
    name, message = str(cause.getClass().getName()), str(cause.getMessage() or "")
    if name == "org.apache.spark.SparkException" and "(" in message:
        # The driver knows a task's error by its text only: Job aborted …: Lost task …: CLASS: MESSAGE
        name, message = _in_text(message)
    if name == _PYTHON:
        name, message = _python(message)
    return Failure(name, _cleaned(message), partition, stage_id)


def _place(text: str) -> tuple[int | None, int | None]:
    match = _TASK.search(text)
    return (int(match[1]), int(match[2])) if match else (None, None)


def _in_text(message: str) -> tuple[str, str]:
    lines = message.splitlines()
    for line in lines:
        if match := re.search(r"\(executor [^)]*\)\)?: ([\w.$]+(?:Exception|Error|Throwable)\w*)(?:: (.*))?$", line):
            rest = [one for one in lines[lines.index(line) + 1 :] if not re.match(r"\s*(at |\.\.\. )", one)]
            tail = []
            for one in rest:
                if one.startswith(("Driver stacktrace", "Caused by")):
                    break
                tail.append(one)
            return match[1], "\n".join([match[2] or "", *tail])
    return "org.apache.spark.SparkException", message


def _python(message: str) -> tuple[str, str]:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    for line in reversed(lines):
        if match := re.match(r"([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Iteration)\w*)(?::\s*(.*))?$", line):
            return match[1], match[2] or ""
    return _PYTHON, lines[-1] if lines else ""


def _cleaned(message: str) -> str:
    """Without task numbers, addresses and traces, which differ from run to run."""
    kept = [line.rstrip() for line in message.splitlines() if not re.match(r"\s*(at [\w.$]+\(|File \")", line)]
    text = re.sub(r"\b(TID|task|stage) \d+(\.\d+)*", r"\1", "\n".join(kept).strip())
    return re.sub(r"@[0-9a-f]{5,}", "@", text)[:MAX_CHARS]
