"""The few numbers below an answer."""

from __future__ import annotations

from workbench.display import KeyNumber
from workbench.formats import number
from workbench.indicators.effects import Compared
from workbench.indicators.recommending.result import Recommendation


def of_recommendation(found: Compared, said: Recommendation) -> list[KeyNumber]:
    """The recommended stack with its ratio and chances, the control, claims, what was left out."""
    numbers: list[KeyNumber] = []
    chosen = said.table.filter(said.table["recommended"])
    if chosen.height:
        row = chosen.row(0, named=True)
        if not row["baseline"]:
            numbers.append((row["stack"], row["ratio"], "times", f"[{number(row['low'])}, {number(row['high'])}]"))
        within = f"{row['stack']} within {100 * said.margin:.2g} % of the best"
        near = None if row["p_near"] is None else 100 * row["p_near"]
        numbers.append((within, near, "% sure", f"the best of all: {_share(row['p_best'])}"))
    effects = found.effects.filter(~found.effects["control"])
    claims = effects.filter(effects["verdict"].is_in(["FASTER", "SLOWER"])).height
    same = effects.filter(effects["verdict"] == "SAME").height
    numbers.append(("told apart", claims, f"of {effects.height}", f"stack and metric; {same} the same"))
    numbers.append(_control(found))
    numbers.append(("left out", said.excluded.height, "stacks", "by checks and constraints"))
    return numbers


def _control(found: Compared) -> KeyNumber:
    """How far two copies of one stack seem to lie apart here: what a difference must be held against."""
    own = found.effects.filter(found.effects["control"] & found.effects["ratio"].is_not_null())
    if not own.height:
        return ("control", None, "", "no control")
    worst = max((max(ratio, 1 / ratio), metric) for ratio, metric in own.select("ratio", "metric").iter_rows())
    return ("control off by at most", 100 * (worst[0] - 1), "%", f"{worst[1]}; the same stack twice")


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.0f} %"
