"""Which measurement to buy next: what it would be worth to know an input of the plan exactly."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import polars as pl

from workbench.capacity.config import HOURS_PER_DAY
from workbench.capacity.model import Floats, Ints, Model, Outcome
from workbench.capacity.tables import INFORMATION

# A bin needs some hundreds of draws for its own best number of nodes.
DRAWS_PER_BIN = 200
N_PERMUTATIONS = 20
# What is within so many standard deviations of chance is not told from nothing.
MIN_STANDARD_DEVIATIONS = 3.0
MEASUREMENT, FORECAST = "measurement", "forecast"


def choose_nodes(needed: Ints, shortage_factor: float) -> int:
    """The number of nodes with the smallest expected loss: a missing node costs `shortage_factor` idle ones.

    The quantile shortage_factor / (1 + shortage_factor) of the nodes that are needed (the newsvendor's answer).

    >>> choose_nodes(np.arange(1, 101), 19.0)
    95
    """
    return int(np.quantile(needed, shortage_factor / (1 + shortage_factor), method="inverted_cdf"))


def expect_least_loss(needed: Ints, shortage_factor: float) -> float:
    """Mean loss of the best number of nodes, in nodes that are idle for a day.

    >>> expect_least_loss(np.array([9, 10, 10, 11]), 1.0)
    0.5
    """
    over = choose_nodes(needed, shortage_factor) - needed
    return float(np.where(over > 0, over, -shortage_factor * over).mean())


def build_information(
    model: Model, samples: Mapping[str, Floats], outcome: Outcome, shortage_factor: float
) -> pl.DataFrame:
    """Estimate how much knowing each input exactly would save per day, largest saving first.

    Nodes are provided for the peak, before the inputs are known better. Knowing one input would change the number; the
    expected loss that this saves is the most that measuring the input can be worth.

    `model`, `samples`, `outcome`: The model, the draws of its inputs by name, and the plan of each draw.
    `shortage_factor`: Cost of a node that is missing at the peak over that of one that is idle.

    Returns: Table INFORMATION, without inputs that are points; in currency with a price of a node, else in idle
    nodes.

    Expected value of partial perfect information, by sorting the draws into bins of the input (Strong and Oakley 2013).
    The best number of a bin is chosen on the same draws, which makes the value too large: the mean over the input's
    permutations, which are worth nothing, is taken off, and what does not stand out of them is not `resolved`. It does
    not show what a measurement costs, nor what a few more samples, which leave an interval, are worth.
    """
    needed = outcome.nodes.max(axis=1)
    total = expect_least_loss(needed, shortage_factor)
    price = 1.0 if model.node_price_per_h is None else HOURS_PER_DAY * model.node_price_per_h
    random = np.random.default_rng(0)
    rows = []
    for quantity in model.quantities:
        if quantity.is_point:
            continue
        order = np.argsort(samples[quantity.name], kind="stable")
        saved = total - _sum_losses_of_bins(needed[order], shortage_factor)
        chance = [
            total - _sum_losses_of_bins(random.permutation(needed), shortage_factor) for _ in range(N_PERMUTATIONS)
        ]
        value = max(saved - float(np.mean(chance)), 0.0)
        rows.append(
            {
                "input": quantity.name,
                "kind": FORECAST if quantity in (model.jobs_factor, model.users_factor) else MEASUREMENT,
                "saving": price * value,
                "share": value / total if total else 0.0,
                "resolved": value > MIN_STANDARD_DEVIATIONS * float(np.std(chance)),
            }
        )
    return INFORMATION.frame(rows).sort("saving", "input", descending=[True, False])


def _sum_losses_of_bins(needed: Ints, shortage_factor: float) -> float:
    bins = np.array_split(needed, max(1, len(needed) // DRAWS_PER_BIN))
    return sum(len(group) * expect_least_loss(group, shortage_factor) for group in bins) / len(needed)
