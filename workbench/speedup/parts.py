"""How much of each query's time did each operator take? Shared times are split by what a unit of work costs.

Where a codegen span fuses operators, the log has one time for all of them. Over many stages their work differs, so a
unit of work gets a price that fits all shared times best (`unit_costs`), and each shared time is split in proportion
to work times price: the parts still add up to what was measured. Operators whose work goes together in all of them
cannot be told apart and stay one group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.speedup.measured import Measured

Floats = npt.NDArray[np.float64]
ACCELERATED = "*"
# A direction in which prices can move this freely without a worse fit tells nothing: smallest eigenvalue of the
# correlation of the work columns.
LEAST_EIGENVALUE = 0.02
# A price is drawn towards the plain guess of equal prices by as much as this share of its column's weight.
RIDGE = 0.001
# Operators that evaluate the query's own expressions, besides aggregates and Python's.
EXPRESSIONS = frozenset({"Filter", "Project", "Expand", "Generate", "Window", "Filter + Project"})
LEAST_KEPT, MOST_BY_PRICE = 0.25, 2.0


@dataclass(frozen=True)
class Cuts:
    """Pieces as arrays. Row i is a piece; `owner` its row in `keys` (label, session, query, wall_s).

    `work` tells how a shared time may be split, and has a 1 where a time is one operator's; `amount` is the work
    itself, of the median pass as the times are.
    """

    keys: pl.DataFrame
    owner: npt.NDArray[np.intp]
    wall_s: Floats
    shared: npt.NDArray[np.bool_]
    work: Floats
    amount: Floats
    columns: tuple[str, ...]

    def of(self, queries: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Which pieces are of these queries."""
        wanted = self.keys["query"].is_in(list(queries)).to_numpy()
        return np.asarray(wanted[self.owner], dtype=np.bool_)


def cuts(measured: Measured) -> Cuts:
    """Pieces of the executions that count, averaged over the passes of a session, summing to their median wall time.

    Their work likewise sums to the passes' median work.
    A column is an operator (with a star where it ran on the accelerator) or a term such as idle. A piece of one
    owner has 1 in that column, a shared one the work of each of its operators.
    """
    good = measured.executions.filter(pl.col("why_not").is_null())
    group = ["label", "session", "query"]
    of = ["label", "session", "sql_id"]
    works = measured.pieces.group_by(of).agg(work=pl.col("work").list.sum().sum())
    owners = (
        good.join(works, on=of, how="left")
        .group_by(group)
        .agg(scale=_of_median("wall_s"), work_scale=_of_median("work"), wall_s=pl.col("wall_s").median())
    )
    keys = owners.sort(group).with_row_index("owner")
    numbers = good.select(*of, "query").join(keys.drop("wall_s"), on=group).drop("query")
    rows = measured.pieces.join(numbers, on=of).filter(pl.col("wall_s") > 0).sort("owner", "sql_id", "piece")
    named = [_names(row) for row in rows.select("term", "operators", "accelerated", "work").iter_rows()]
    columns = tuple(sorted({name for row in named for name in row}))
    place = {name: column for column, name in enumerate(columns)}
    amount = np.zeros((len(named), len(columns)))
    for i, row in enumerate(named):
        for name, value in row.items():
            amount[i, place[name]] += value
    many = np.array([len(row) > 1 for row in named], dtype=np.bool_)
    present = np.array([[name in row for name in columns] for row in named], dtype=np.float64).reshape(amount.shape)
    # Times are those of the median pass, so work must be, too: prices then hold for logs of any number of passes, and
    # where runs of one description differ in size, work goes with time.
    amount *= rows["work_scale"].to_numpy()[:, None]
    told = amount.sum(axis=1) > 0
    return Cuts(
        keys.drop("scale", "work_scale", "owner"),
        rows["owner"].to_numpy().astype(np.intp),
        (rows["wall_s"] * rows["scale"]).to_numpy(),
        many & told,
        # Where no operator tells its rows, all get the same part.
        np.where((many & told)[:, None], amount, present),
        amount,
        columns,
    )


def _of_median(column: str) -> pl.Expr:
    """What makes the passes' sum their median; one over their number where there is nothing to sum."""
    return (pl.col(column).median() / pl.col(column).sum()).fill_nan(None).fill_null(1 / pl.len())


def _names(row: tuple[str | None, list[str], list[bool], list[float]]) -> Mapping[str, float]:
    term, operators, accelerated, work = row
    if term is not None:
        return {term: 0.0}
    names: dict[str, float] = {}
    for name, fast, amount in zip(operators, accelerated, work, strict=True):
        key = name + ACCELERATED if fast else name
        names[key] = names.get(key, 0.0) + amount
    return names


def session_prices(pieces: Cuts, queries: Sequence[str]) -> Floats:
    """Unit costs by owner (row): those that the owner's own session gives.

    A session's split rests on its own prices, so that what sessions differ in holds the error of the prices, too.
    """
    sessions = pieces.keys.select("label", "session").with_row_index("row")
    out = np.zeros((pieces.keys.height, len(pieces.columns)))
    for _, rows in sessions.group_by("label", "session"):
        mine = np.zeros(pieces.keys.height, dtype=np.bool_)
        mine[rows["row"].to_numpy()] = True
        out[mine] = unit_costs(pieces, queries, mine)
    return out


def unit_costs(pieces: Cuts, queries: Sequence[str], owners: npt.NDArray[np.bool_] | None = None) -> Floats:
    """Seconds per unit of work of each column, never negative, that fit the shared times of these queries best.

    Least squares weighted by one over the time (its noise grows with it) and a slight pull towards equal prices.
    Columns in no shared time get the common price. `owners` limits it to pieces of these owners.
    """
    from scipy.optimize import nnls

    rows = pieces.shared & pieces.of(queries)
    if owners is not None:
        rows &= owners[pieces.owner]
    work, wall_s = pieces.work[rows], pieces.wall_s[rows]
    if not work.sum():
        return np.ones(len(pieces.columns))
    common = float(wall_s.sum() / work.sum())
    weight = 1 / np.sqrt(wall_s)
    norms = np.sqrt((work**2 * (weight**2)[:, None]).sum(axis=0))
    pull = np.diag(np.sqrt(RIDGE) * np.maximum(norms, 1e-9))
    design = np.vstack([work * weight[:, None], pull])
    target = np.concatenate([wall_s * weight, pull @ np.full(len(norms), common)])
    # A price of nothing would hide the operator from every shared time; it gets a hundredth of the common one.
    return np.asarray(np.maximum(nnls(design, target)[0], common / 100))


def split(pieces: Cuts, prices: Floats) -> Floats:
    """Wall seconds by owner (row) and column; each row adds up to the owner's wall time.

    `prices` are one row for all owners, or one for each.

    Moving rows has a steady price, evaluating expressions has not: one pattern match costs more than hundred
    comparisons. So in a shared time operators that move rows get work times price, and those that evaluate
    expressions the rest: in proportion to work times price up to twice what that says, which noise and ordinary
    expressions explain, and beyond it to their work. They keep at least a quarter of what their price says, and the
    parts are scaled to the time that was measured.
    """
    base = pieces.work * (prices[pieces.owner] if prices.ndim == 2 else prices)
    evaluates = np.array([_evaluates(name) for name in pieces.columns], dtype=np.bool_)
    expected = (base * evaluates).sum(axis=1, keepdims=True)
    rest = np.maximum(pieces.wall_s[:, None] - (base * ~evaluates).sum(axis=1, keepdims=True), 0.0)
    own_work = pieces.work * evaluates
    most = MOST_BY_PRICE * expected
    beyond = own_work / _positive(own_work.sum(axis=1, keepdims=True)) * np.maximum(rest - most, 0.0)
    by_price = base * np.maximum(np.minimum(rest, most) / _positive(expected), LEAST_KEPT)
    value = np.where(evaluates, by_price + beyond, base)
    value = np.where(pieces.shared[:, None] & (expected > 0), value, base)
    value = np.where(pieces.shared[:, None], value, pieces.work)
    value = value / _positive(value.sum(axis=1, keepdims=True)) * pieces.wall_s[:, None]
    return _by_owner(pieces, value)


def amounts(pieces: Cuts) -> Floats:
    """Work by owner (row) and column, in millions of rows: what there was to do, whatever it took."""
    return _by_owner(pieces, pieces.amount)


def _by_owner(pieces: Cuts, value: Floats) -> Floats:
    out = np.zeros((pieces.keys.height, value.shape[1]))
    np.add.at(out, pieces.owner, value)
    return out


def _evaluates(column: str) -> bool:
    name = column.removesuffix(ACCELERATED)
    return name in EXPRESSIONS or name.endswith(("Aggregate", "Python", "InPandas"))


def _positive(values: Floats) -> Floats:
    return np.asarray(np.maximum(values, 1e-30))


def inseparable(pieces: Cuts) -> list[list[str]]:
    """Groups of columns whose work goes together in every shared time, so that no price tells them apart.

    The pair most alike is joined until every remaining direction is told by the data.
    """
    table = pieces.work[pieces.shared] / np.sqrt(pieces.wall_s[pieces.shared])[:, None]
    # Accelerated operators tell their own times; what little they share is not worth a group.
    keep = [
        column
        for column, name in enumerate(pieces.columns)
        if table[:, column].any() and not name.endswith(ACCELERATED)
    ]
    groups = [[pieces.columns[column]] for column in keep]
    columns = [table[:, column] / np.linalg.norm(table[:, column]) for column in keep]
    while len(columns) > 1:
        gram = np.array(columns) @ np.array(columns).T
        if np.linalg.eigvalsh(gram)[0] >= LEAST_EIGENVALUE:
            break
        np.fill_diagonal(gram, -1)
        first, second = sorted(int(i) for i in np.unravel_index(int(gram.argmax()), gram.shape))
        both = columns[first] + columns[second]
        columns[first] = both / np.linalg.norm(both)
        groups[first] = sorted(groups[first] + groups[second])
        del columns[second], groups[second]
    return [group for group in groups if len(group) > 1]
