"""Where our figures of the same files are another than the old tool's, on purpose."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """Attributes: what it is about, what the old tool does, what we do, and why."""

    about: str
    old: str
    ours: str
    why: str


DIFFERENCES = (
    Difference(
        "headings of times.csv",
        "23 over 26 columns: from the tenth on each stands over another's values",
        "one a column, with its unit",
        "nobody can read the old ones without its source",
    ),
    Difference(
        "First PVC Bind",
        "0 for every workload: the time is taken from itself",
        "from the request to the binding",
        "the heading says so",
    ),
    Difference(
        "deltas of -1 s",
        "0",
        "-1",
        "cutting both ends to seconds moves a delta by up to 1 s either way; taking one side only moves the mean",
    ),
    Difference(
        "what was not measured",
        "another milestone's time, and the delta that follows from it",
        "nothing",
        "a backend or an eviction that nobody looked for is no measurement",
    ),
    Difference(
        "series of the plots",
        "each sorted by its own values within a second: a workload has another place in each row",
        "one order, by time of submission, for all",
        "rows can be read across",
    ),
    Difference(
        "offsets of times",
        "dropped",
        "counted",
        "a time with an offset is another one",
    ),
    Difference(
        "--skip-errors",
        "always on",
        "on unless --no-skip-errors",
        "what was skipped must be looked at, too",
    ),
    Difference(
        "averages",
        "the mean alone",
        "the mean, p50 and p95",
        "a mean hides the tail",
    ),
)
