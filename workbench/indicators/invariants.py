"""Do a session, its effects and its recommendation agree? Each invariant with what was found; a broken one stops."""

from __future__ import annotations

import math

import polars as pl

from workbench.checks import held
from workbench.indicators.effects import Compared
from workbench.indicators.recommending.result import Recommendation


def check_study(found: Compared, said: Recommendation) -> pl.DataFrame:
    """Is every run counted once, is every ratio that of its rounds, is nothing recommended that may not be?

    Returns
    -------
    DataFrame
        One row per invariant: `check`, `found`, `allowed` (both at most), `holds`.

    Raises
    ------
    InputError
        An invariant does not hold; the message names it with both figures.
    """
    return held([*_of_runs(found), *_of_effects(found), *_of_recommendation(found, said)])


def _of_runs(found: Compared) -> list[tuple[str, int]]:
    runs, values = found.observed.runs, found.observed.values
    by_run = ["inspection_id", "run"]
    failed = runs.filter(pl.col("status") != "ok")
    return [
        ("runs that failed and have a value", values.join(failed, on=by_run, how="semi").height),
        ("values without a run", values.join(runs, on=by_run, how="anti").height),
        ("a valid session on several machines", _kinds(found, "hardware_key")),
        (
            "a valid session with a case in two versions",
            _more_than_one(runs, "case", "indicator_version") * found.valid,
        ),
        ("rounds of a case with an arm twice", runs.filter(runs.select("case", "round", "arm").is_duplicated()).height),
    ]


def _kinds(found: Compared, name: str) -> int:
    """How many there are beyond one, where one is all there may be."""
    return max(0, found.observed.runs[name].n_unique() - 1) if found.valid else 0


def _more_than_one(runs: pl.DataFrame, by: str, name: str) -> int:
    return runs.group_by(by).agg(pl.col(name).n_unique().alias("kinds")).filter(pl.col("kinds") > 1).height


def _of_effects(found: Compared) -> list[tuple[str, int]]:
    effects = found.effects.filter(pl.col("ratio").is_not_null())
    bounded = effects.filter(pl.col("low").is_not_null())
    outside = bounded.filter((pl.col("low") > pl.col("ratio")) | (pl.col("ratio") > pl.col("high")))
    margin = 1 + pl.col("margin")
    faster = bounded.filter((pl.col("verdict") == "FASTER") & (pl.col("low") <= margin))
    slower = bounded.filter((pl.col("verdict") == "SLOWER") & (pl.col("high") >= 1 / margin))
    same = bounded.filter((pl.col("verdict") == "SAME") & ((pl.col("low") < 1 / margin) | (pl.col("high") > margin)))
    return [
        ("ratios outside of their own interval", outside.height),
        ("ratios that are not those of their rounds", _recomputed(found)),
        ("claims whose interval reaches into the margin", faster.height + slower.height),
        ("SAME beyond the margin", same.height),
    ]


def _recomputed(found: Compared) -> int:
    """How many ratios differ from the geometric mean over rounds, worked out another way."""
    base = found.observed.values.filter(pl.col("arm") == found.observed.session.baseline)
    pairs = found.observed.values.join(base, on=["metric", "round"], suffix="_base")
    logs = (pl.col("value_base") / pl.col("value")).log()
    signed = pl.when(pl.col("better") == "lower").then(logs).otherwise(-logs)
    positive = pairs.filter((pl.col("value") > 0) & (pl.col("value_base") > 0))
    again = positive.group_by("arm", "metric").agg(signed.mean().exp().alias("again"))
    both = found.effects.join(again, on=["arm", "metric"], how="inner")
    return sum(
        not math.isclose(one, two, rel_tol=1e-9) for one, two in both.select("ratio", "again").iter_rows() if one
    )


def _of_recommendation(found: Compared, said: Recommendation) -> list[tuple[str, int]]:
    chosen = said.table.filter(pl.col("recommended"))
    left_out = set(said.excluded["stack"].to_list())
    chances = said.table["p_best"].drop_nulls()
    off = bool(len(chances)) and abs(float(chances.sum()) - 1) > 1e-6
    return [
        ("recommended stacks of an invalid session", 0 if found.valid else chosen.height),
        ("stacks that are left out and ranked", len(left_out & set(said.table["stack"].to_list()))),
        ("chances to be the best that do not add up to one", int(off)),
        ("sentences without runs behind them", said.justifications.filter(pl.col("runs").list.len() == 0).height),
    ]
