"""What the inline hooks reported from the tasks of a run, and which attempt of each partition a dump is made of.

A partition may be computed more than once: sampled before a range partitioning, tried again, speculated. Inputs and
output of an operator are taken from one and the same attempt, the last that ended well: it is the one whose rows went
on. Pure: it knows no Spark.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from workbench.lore.sidecar import PartitionPrint

OUTPUT = "output"


@dataclass(frozen=True)
class Record:
    """What one tap saw of one partition in one attempt of a task.

    Attributes
    ----------
    place
        input-K or output.
    attempt
        Spark's id of the task attempt, unique in the application.
    exhausted
        Did it see the end of its rows? A LIMIT above, or a join whose other side has ended, stops earlier.
    fault
        What went wrong with the tap itself; null when nothing did.
    error_class
        What the task died of; null when it did not.
    files, batch_rows
        Names below the staging folder and the rows in each; of an input.
    print
        Of an output.
    """

    lore_id: int
    place: str
    partition: int
    attempt: int
    exhausted: bool
    fault: str | None = None
    error_class: str | None = None
    error_message: str | None = None
    files: tuple[str, ...] = ()
    batch_rows: tuple[int, ...] = ()
    n_bytes: int = 0
    print: PartitionPrint | None = None

    @property
    def is_good(self) -> bool:
        """Did the tap and its task end well?"""
        return self.fault is None and self.error_class is None


def parse(line: str) -> Record:
    """A line of JSON as the hooks write it.

    Examples
    --------
    >>> told = '{"tap": "loreId-5/input-0", "partition": 2, "attempt": 9, "exhausted": true, '
    >>> record = parse(told + '"files": ["p2-a9-1-0.parquet"], "batch_rows": [7], "bytes": 901}')
    >>> record.lore_id, record.place, record.partition, record.batch_rows
    (5, 'input-0', 2, (7,))
    """
    told: dict[str, Any] = json.loads(line)
    tap, _, place = str(told["tap"]).partition("/")
    found = None
    if "hash_sum" in told:
        found = PartitionPrint(
            n_rows=told["rows"],
            hash_sum=int(told["hash_sum"]),
            hash_xor=told["hash_xor"],
            ordered_sum=int(told["ordered_sum"]),
        )
    return Record(
        lore_id=int(tap.removeprefix("loreId-")),
        place=place,
        partition=told["partition"],
        attempt=told["attempt"],
        exhausted=told["exhausted"],
        fault=told.get("fault"),
        error_class=told.get("error_class"),
        error_message=told.get("error_message"),
        files=tuple(told.get("files", ())),
        batch_rows=tuple(told.get("batch_rows", ())),
        n_bytes=told.get("bytes", 0),
        print=found,
    )


# Place → partition → the record that is used.
Picked = dict[str, dict[int, Record]]


def pick(records: Iterable[Record], joint: Sequence[str], *, one_to_one: bool) -> Picked:
    """One record for each partition of each place.

    Parameters
    ----------
    records
        Of one operator, in the order in which the driver was told.
    joint
        Places that a task passes together: the inputs that are neither broadcast nor subqueries.
    one_to_one
        Does partition P of the output come from partition P of each of these? Then they are taken from one attempt.

    Returns
    -------
    dict
        By place and partition; an attempt that ended well before one that did not, and the last of these. The output
        is left out where its attempt is another than its inputs'.
    """
    by_place: dict[str, dict[int, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        by_place[record.place][record.partition].append(record)
    together = joint if one_to_one else ()
    picked: Picked = {
        place: {number: _last(tries) for number, tries in partitions.items()}
        for place, partitions in by_place.items()
        if place not in together
    }
    for number in sorted(set[int]().union(*(by_place[place] for place in together))):
        for place, record in _attempt({place: by_place[place].get(number, []) for place in together}).items():
            picked.setdefault(place, {})[number] = record
    outputs = {
        number: _output(tries, number, picked, by_place, joint, one_to_one=one_to_one)
        for number, tries in by_place[OUTPUT].items()
    }
    picked[OUTPUT] = {number: record for number, record in outputs.items() if record is not None}
    return picked


def _last(tries: Sequence[Record]) -> Record:
    return ([one for one in tries if one.is_good] or tries)[-1]


def _attempt(tries: Mapping[str, Sequence[Record]]) -> dict[str, Record]:
    """The records of the last attempt that all places were passed in; empty when there is none."""
    common = set.intersection(*({one.attempt for one in each} for each in tries.values()))
    good = {one.attempt for each in tries.values() for one in each} - {
        one.attempt for each in tries.values() for one in each if not one.is_good
    }
    order = [one.attempt for one in next(iter(tries.values())) if one.attempt in common]
    if not order:
        return {}
    chosen = ([attempt for attempt in order if attempt in good] or order)[-1]
    return {place: [one for one in each if one.attempt == chosen][-1] for place, each in tries.items()}


def _output(
    tries: Sequence[Record],
    number: int,
    picked: Picked,
    by_place: Mapping[str, Mapping[int, Sequence[Record]]],
    joint: Sequence[str],
    *,
    one_to_one: bool,
) -> Record | None:
    if one_to_one:
        attempts = {picked[place][number].attempt for place in joint if number in picked.get(place, {})}
        same = [one for one in tries if {one.attempt} == attempts]
        return same[-1] if same else None
    # Which attempts belong together cannot be told then; they do where there was one only.
    once = all(len(each) == 1 for place in joint for each in by_place[place].values())
    return tries[0] if once and len(tries) == 1 else None
