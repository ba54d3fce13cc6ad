"""What to do with a replay: keep a setting or not, find the rows that differ, hand the operator on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.lore.key_numbers import other_side

if TYPE_CHECKING:
    from workbench.lore.outcome import Outcome


def of_outcome(found: Outcome) -> list[str]:
    """What the result asks for first, and how somebody else gets the same operator."""
    place = f"(DUMP: {'/'.join(found.place.parts[-2:])}, below this report's folder unless you named another)"
    if found.replayed is None:
        return [f"Look into the dump without running anything: `workbench lore inspect DUMP` {place}."]
    bundle = f"Send the operator to whoever can mend it, as one file: `workbench lore bundle DUMP` {place}."
    replayed = found.replayed
    if not replayed.verification["passed"]:
        again = "`workbench lore dump QUERY --mode inline` keeps what the query itself saw"
        failed = replayed.verification["n_found"] is None
        smallest = f"Find the smallest input with which it fails: `workbench lore bisect DUMP` {place}."
        return [smallest if failed else f"Do not trust its time: it gives other rows alone. {again}.", bundle]
    if replayed.not_accelerated:
        return ["Take another operator, with `-p ids=ID`: the other engine left this one to Spark.", bundle]
    if replayed.comparison is not None and not replayed.comparison["equal"]:
        smallest = f"`workbench lore bisect DUMP --b KEY=VALUE` {place}"
        return [f"Do not use B: it gives other rows. The smallest input that shows it: {smallest}.", bundle]
    return [_of_ratio(found), bundle]


def _of_ratio(found: Outcome) -> str:
    if found.ratio is None:
        return "Is there a better setting? `workbench run lore -p 'confs_b=[\"KEY=VALUE\"]'` holds it against this one."
    told = {
        "FASTER": "Try {b} on the whole query: it makes this operator faster, the query may gain less.",
        "SLOWER": "Keep A: {b} makes this operator slower.",
        "SAME": "Leave it as it is: {b} changes nothing that matters here. Look at another operator, `-p ids=ID`.",
        "UNDECIDED": "Not decided: more runs of each side will tell, `workbench run lore -p repeat=20`.",
    }
    return told[found.ratio["verdict"]].format(b=other_side(found))
