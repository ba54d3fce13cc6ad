"""submitted.json, sampled.json and times.csv, in the old tool's keys and formats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import files
from workbench.scaletest.upstream import times_csv
from workbench.scaletest.upstream.chain import FALLBACKS, FIELDS, Milestone
from workbench.scaletest.upstream.deltas import US, column
from workbench.scaletest.upstream.reading import SAMPLED, SUBMITTED

if TYPE_CHECKING:
    import polars as pl

# It writes these as the API gave them, the others from Python's datetimes.
_AS_SERVED: frozenset[Milestone] = frozenset({"workload", "job", "podgroup"})


@dataclass(frozen=True, slots=True)
class Sent:
    """A submission that the server took. `at_us`: microseconds since 1970, the client's clock."""

    name: str
    project: str
    namespace: str
    at_us: int

    def row(self) -> dict[str, str]:
        """As it stands in submitted.json."""
        return {
            "jobName": self.name,
            "projectName": self.project,
            "jobNamespace": self.namespace,
            "submitTimestamp": datetime.fromtimestamp(self.at_us // US, UTC)
            .replace(microsecond=self.at_us % US)
            .isoformat(),
        }


def project_of(namespace: str) -> str:
    """The Run:ai project of a namespace: without the prefix, and nothing but the prefix.

    Examples
    --------
    >>> project_of("runai-my-runai-tests"), project_of("team-a")
    ('my-runai-tests', 'team-a')
    """
    return namespace.removeprefix("runai-")


def write_submitted(folder: Path, sent: Iterable[Sent]) -> Path:
    """Write submitted.json, whole or not at all."""
    return files.write_text(folder / SUBMITTED, _lines(one.row() for one in sent))


def write_sampled(folder: Path, jobs: pl.DataFrame) -> Path:
    """Write sampled.json of the table `upstream_jobs`."""
    return files.write_text(folder / SAMPLED, _lines(_sample(row) for row in jobs.iter_rows(named=True)))


def write_times(folder: Path, jobs: pl.DataFrame, *, skip_errors: bool = True, bug_compatible: bool = False) -> Path:
    """Write times.csv."""
    text = times_csv.text(jobs, skip_errors=skip_errors, bug_compatible=bug_compatible)
    return files.write_text(folder / times_csv.FILE, text)


def _sample(row: Mapping[str, Any]) -> dict[str, str]:
    found = {"jobName": row["name"], "jobNamespace": row["namespace"], "projectName": row["project"]}
    for milestone, field in FIELDS.items():
        second, shape = row[column(milestone)], milestone
        if second is None:
            shape = FALLBACKS[milestone]
            second = row[column(shape)]
        text = datetime.fromtimestamp(second, UTC).isoformat()
        found[field] = text.removesuffix("+00:00") + "Z" if shape in _AS_SERVED else text
    return found


def _lines(rows: Iterable[dict[str, str]]) -> str:
    """One row a line: a list that can be read, and that a diff can show."""
    return "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
