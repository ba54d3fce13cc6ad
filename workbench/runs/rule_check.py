"""Rules of a reader for one run, checked in a notebook as `workbench runs check` checks a file of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.runs.catalogue import StoredRun, open_result
from workbench.runs.run_folder import Run

if TYPE_CHECKING:
    import polars as pl


def check_rules(
    run: str | Path | Run | StoredRun,
    rules: str | Path | Sequence[Mapping[str, Any]],
    out: str | Path | None = None,
) -> pl.DataFrame:
    """Which of my limits does this run keep?

    `run`: As `runs.open` takes it, or what it gives.
    `rules`: A file of thresholds, or a list of rules with the same keys.
    `out`: Where runs are found that rules name; by default where runs are written.

    Returns: One row per rule: `rule`, `outcome` (passed, broken or refused: it cannot be checked), `found`, `rows`
    (checked), `broken_rows`. A run that is invalid passes no rule.

    Raises
    ------
    ConfigError
        The rules are malformed, or none is for the run's area.

    >>> rules = [{"key": "verdict", "equals": "valid"}, {"table": "estimates", "column": "gpus", "at_most": 3}]
    >>> check_rules("data/samples/capacity/sizing", rules)["outcome"].to_list()
    ['passed', 'broken']
    """
    import polars as pl

    from workbench.core.files import default_out
    from workbench.runs import threshold_gate

    stored = run if isinstance(run, StoredRun) else open_result(run, out)
    place = default_out() if out is None else out
    if isinstance(rules, str | Path):
        areas = threshold_gate.load_thresholds(rules).areas
        gate = threshold_gate.load_gate(rules, [stored.area], areas, place)
    else:
        parsed = threshold_gate.parse_thresholds({stored.area: list(map(dict, rules))}, Path("rules"), "")
        gate = threshold_gate.build_gate(parsed, [stored.area], place, lambda name: open_result(name, place))
    checked = gate.check_run(stored)
    schema = {"rule": pl.String, "outcome": pl.String, "found": pl.String, "rows": pl.Int64, "broken_rows": pl.Int64}
    return pl.DataFrame(checked["rules"] if checked else [], schema=schema)
