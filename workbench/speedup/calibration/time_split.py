"""Split of shared times among operators by fitted unit costs of work.

Where a codegen span fuses operators, the log has one time for all of them. Over many stages their work differs, so
each unit of work gets the price that fits all shared times best (`fit_unit_costs`), and each shared time is split in
proportion to work times price; the parts add up to the measured time. Operators whose work is proportional in all
shared times cannot be separated and stay one group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from workbench.speedup.attribution.time_pieces import COUNTS, Measured
from workbench.speedup.engines import ACCELERATED

Floats = npt.NDArray[np.float64]
# Smallest eigenvalue of the correlation of the work columns: below it, prices can move without a worse fit.
MIN_EIGENVALUE = 0.02
# Pull of a price towards equal prices, as a share of its column's weight.
RIDGE = 0.001
# Operators that evaluate the query's own expressions, besides aggregates and Python's.
EXPRESSIONS = frozenset({"Filter", "Project", "Expand", "Generate", "Window", "Filter + Project"})
MIN_PRICE_FACTOR, MAX_PRICE_FACTOR = 0.25, 2.0


@dataclass(frozen=True)
class PlannedOperators:
    """Number of nodes of each operator in the first plan, by row; with a star where an accelerator was to run them.

    `is_first` is false where only the last plan is known, which has fewer nodes.
    """

    names: tuple[str, ...]
    counts: Floats
    is_first: bool = True


def count_planned_operators(measured: Measured, keys: pl.DataFrame) -> PlannedOperators:
    """Planned operators of the rows of `keys` (label, session, query): medians over their executions that count.

    Facts from before these were kept have the nodes of the time pieces, which are those of the last plan.
    """
    group, of = ["label", "session", "query"], ["label", "session", "sql_id"]
    executions = measured.executions.filter(COUNTS)
    known = executions.filter(pl.col("planned_operators").is_not_null())
    planned = known.select(*group, "sql_id", name="planned_operators", n="planned_counts").explode("name", "n")
    later = measured.pieces.join(executions.join(known, on=of, how="anti").select(*of, "query"), on=of)
    nodes = (
        later.select(*group, "sql_id", "operators", "accelerated", "node_ids")
        .explode("operators", "accelerated", "node_ids")
        .unique([*of, "node_ids"])
        .with_columns(name=pl.col("operators") + pl.when("accelerated").then(pl.lit(ACCELERATED)).otherwise(pl.lit("")))
        .group_by(*group, "sql_id", "name")
        .agg(n=pl.len().cast(pl.Int64))
    )
    counts = pl.concat([planned, nodes.select(planned.columns)]).drop_nulls("name")
    counts = counts.group_by(*group, "name").agg(pl.col("n").median())
    names = sorted(counts["name"].unique())
    place = {key: row for row, key in enumerate(keys.select(group).iter_rows())}
    values = np.zeros((keys.height, len(names)))
    for label, session, query, name, count in counts.iter_rows():
        values[place[label, session, query], names.index(name)] = count
    return PlannedOperators(tuple(names), values, is_first=not later.height)


@dataclass(frozen=True)
class PieceArrays:
    """Pieces as arrays. Row i is a piece; `owner` its row in `keys` (label, session, query, wall_s).

    `work` splits shared times and is 1 where a time belongs to one operator; `amount` is the work itself, scaled to
    the median pass like the times. `planned` are the operators of the plan of each row of `keys`.
    """

    keys: pl.DataFrame
    owner: npt.NDArray[np.intp]
    wall_s: Floats
    shared: npt.NDArray[np.bool_]
    work: Floats
    amount: Floats
    columns: tuple[str, ...]
    planned: PlannedOperators

    def select_queries(self, queries: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Mask of the pieces of these queries."""
        wanted = self.keys["query"].is_in(list(queries)).to_numpy()
        return np.asarray(wanted[self.owner], dtype=np.bool_)


def build_piece_arrays(measured: Measured) -> PieceArrays:
    """Pieces of the executions that count, averaged over the passes of a session.

    The pieces of a query sum to its median wall time, and their work to its median work. A column is an operator (with
    a star where it ran on the accelerator) or a term such as idle. A piece of one operator has 1 in its column, a
    shared piece has the work of each of its operators.
    """
    executions = measured.executions.filter(COUNTS)
    group = ["label", "session", "query"]
    of = ["label", "session", "sql_id"]
    works = measured.pieces.group_by(of).agg(work=pl.col("work").list.sum().sum())
    owners = (
        executions.join(works, on=of, how="left")
        .group_by(group)
        .agg(
            scale=_median_weight_expr("wall_s"),
            work_scale=_median_weight_expr("work"),
            wall_s=pl.col("wall_s").median(),
        )
    )
    keys = owners.sort(group).with_row_index("owner")
    numbers = executions.select(*of, "query").join(keys.drop("wall_s"), on=group).drop("query")
    rows = measured.pieces.join(numbers, on=of).filter(pl.col("wall_s") > 0).sort("owner", "sql_id", "piece")
    named = [_weigh_columns(row) for row in rows.select("term", "operators", "accelerated", "work").iter_rows()]
    columns = tuple(sorted({name for row in named for name in row}))
    place = {name: column for column, name in enumerate(columns)}
    amount = np.zeros((len(named), len(columns)))
    for i, row in enumerate(named):
        for name, value in row.items():
            amount[i, place[name]] += value
    many = np.array([len(row) > 1 for row in named], dtype=np.bool_)
    present = np.array([[name in row for name in columns] for row in named], dtype=np.float64).reshape(amount.shape)
    # Work is scaled to the median pass like the times, so that prices hold for logs of any number of passes.
    amount *= rows["work_scale"].to_numpy()[:, None]
    has_work = amount.sum(axis=1) > 0
    return PieceArrays(
        keys.drop("scale", "work_scale", "owner"),
        rows["owner"].to_numpy().astype(np.intp),
        (rows["wall_s"] * rows["scale"]).to_numpy(),
        many & has_work,
        # Without row counts, all operators get the same part.
        np.where((many & has_work)[:, None], amount, present),
        amount,
        columns,
        count_planned_operators(measured, keys),
    )


def _median_weight_expr(column: str) -> pl.Expr:
    """Weight that turns the sum over passes into their median; one over their number if the sum is 0."""
    return (pl.col(column).median() / pl.col(column).sum()).fill_nan(None).fill_null(1 / pl.len())


def _weigh_columns(row: tuple[str | None, list[str], list[bool], list[float]]) -> Mapping[str, float]:
    """Weigh the operators that share a time piece by their estimated work; a piece with a term of its own has no work.

    `row`: term (null if shared), operators, whether each is accelerated, work of each.

    >>> _weigh_columns((None, ["Sort", "Filter"], [True, False], [3.0, 1.0]))
    {'Sort*': 3.0, 'Filter': 1.0}
    """
    term, operators, accelerated, work = row
    if term is not None:
        return {term: 0.0}
    names: dict[str, float] = {}
    for name, fast, amount in zip(operators, accelerated, work, strict=True):
        key = name + ACCELERATED if fast else name
        names[key] = names.get(key, 0.0) + amount
    return names


def fit_session_prices(pieces: PieceArrays, queries: Sequence[str]) -> Floats:
    """Unit costs by owner (row), fitted to the owner's own session.

    Each session is split by its own prices, so that the variance between sessions includes the error of the prices.
    """
    sessions = pieces.keys.select("label", "session").with_row_index("row")
    out = np.zeros((pieces.keys.height, len(pieces.columns)))
    for _, rows in sessions.group_by("label", "session"):
        in_session = np.zeros(pieces.keys.height, dtype=np.bool_)
        in_session[rows["row"].to_numpy()] = True
        out[in_session] = fit_unit_costs(pieces, queries, in_session)
    return out


def fit_unit_costs(pieces: PieceArrays, queries: Sequence[str], owners: npt.NDArray[np.bool_] | None = None) -> Floats:
    """Seconds per unit of work of each column that fit the shared times of these queries best.

    Non-negative least squares, weighted by one over the time (its noise grows with it), with a slight pull towards
    equal prices. Columns without shared times get the common price. `owners` limits the fit to these owners.
    """
    from scipy.optimize import nnls

    rows = pieces.shared & pieces.select_queries(queries)
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
    # A price of 0 would remove the operator from every shared time; the minimum is a hundredth of the common price.
    return np.asarray(np.maximum(nnls(design, target)[0], common / 100))


def split_times(pieces: PieceArrays, prices: Floats) -> Floats:
    """Wall seconds by owner (row) and column; each row adds up to the owner's wall time.

    `prices` is one row for all owners, or one row for each.

    Moving rows has a steady price; evaluating expressions does not: one pattern match costs more than a hundred
    comparisons. In a shared time, operators that move rows get work times price, and operators that evaluate
    expressions get the rest: in proportion to work times price up to twice that amount, and beyond it in proportion to
    work. They keep at least a quarter of work times price. The parts are scaled to the measured time.
    """
    base = pieces.work * (prices[pieces.owner] if prices.ndim == 2 else prices)
    evaluates = np.array([_evaluates_expressions(name) for name in pieces.columns], dtype=np.bool_)
    expected = (base * evaluates).sum(axis=1, keepdims=True)
    remainder_s = np.maximum(pieces.wall_s[:, None] - (base * ~evaluates).sum(axis=1, keepdims=True), 0.0)
    own_work = pieces.work * evaluates
    cap_s = MAX_PRICE_FACTOR * expected
    beyond = own_work / _clip_positive(own_work.sum(axis=1, keepdims=True)) * np.maximum(remainder_s - cap_s, 0.0)
    by_price = base * np.maximum(np.minimum(remainder_s, cap_s) / _clip_positive(expected), MIN_PRICE_FACTOR)
    value = np.where(evaluates, by_price + beyond, base)
    value = np.where(pieces.shared[:, None] & (expected > 0), value, base)
    value = np.where(pieces.shared[:, None], value, pieces.work)
    value = value / _clip_positive(value.sum(axis=1, keepdims=True)) * pieces.wall_s[:, None]
    return _sum_by_owner(pieces, value)


def sum_work(pieces: PieceArrays) -> Floats:
    """Work by owner (row) and column, in millions of rows."""
    return _sum_by_owner(pieces, pieces.amount)


def _sum_by_owner(pieces: PieceArrays, value: Floats) -> Floats:
    """Values [piece, column] summed to [owner, column]."""
    out = np.zeros((pieces.keys.height, value.shape[1]))
    np.add.at(out, pieces.owner, value)
    return out


def _evaluates_expressions(column: str) -> bool:
    name = column.removesuffix(ACCELERATED)
    return name in EXPRESSIONS or name.endswith(("Aggregate", "Python", "InPandas"))


def _clip_positive(values: Floats) -> Floats:
    return np.asarray(np.maximum(values, 1e-30))


def find_inseparable_columns(pieces: PieceArrays) -> list[list[str]]:
    """Groups of columns whose work is proportional in every shared time, so that prices cannot separate them.

    The most similar pair is joined until the data determine every remaining price.
    """
    table = pieces.work[pieces.shared] / np.sqrt(pieces.wall_s[pieces.shared])[:, None]
    # Accelerated operators report their own times and share too little for a group.
    keep = [
        column
        for column, name in enumerate(pieces.columns)
        if table[:, column].any() and not name.endswith(ACCELERATED)
    ]
    groups = [[pieces.columns[column]] for column in keep]
    columns = [table[:, column] / np.linalg.norm(table[:, column]) for column in keep]
    while len(columns) > 1:
        gram = np.array(columns) @ np.array(columns).T
        if np.linalg.eigvalsh(gram)[0] >= MIN_EIGENVALUE:
            break
        np.fill_diagonal(gram, -1)
        first, second = sorted(int(i) for i in np.unravel_index(int(gram.argmax()), gram.shape))
        both = columns[first] + columns[second]
        columns[first] = both / np.linalg.norm(both)
        groups[first] = sorted(groups[first] + groups[second])
        del columns[second], groups[second]
    return [group for group in groups if len(group) > 1]
