"""A factor model for the original tools: `CPUOperator,Score`, by their names for Spark's operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from workbench.speedup import factor_file
from workbench.speedup.builtin import known_operators
from workbench.speedup.model import FactorModel

# Names of the original tools, by the operator's name in plans.
EXECS = {
    "Scan parquet": ("FileSourceScanExec", "BatchScanExec"),
    "Scan orc": ("FileSourceScanExec", "BatchScanExec"),
    "Exchange": ("ShuffleExchangeExec",),
}


def export_upstream(model: FactorModel, path: str | Path) -> list[str]:
    """Write the operators' factors as the original tools read them; give back what a reader should know.

    Parameters
    ----------
    model
        The factors; groups give each of their operators the group's factor. Terms that are no operator (idle, task
        overhead) and operators that those tools do not know are left out, and named in the notes.
    path
        CSV file to write.

    Returns
    -------
    list of str
        Notes: what was left out, which operator stands for a group, which scan factor was raised.

    Raises
    ------
    InputError
        No operator of the model is known there.

    Notes
    -----
    The file has no intervals, and those tools take factors for task time in an arithmetic mean: their estimates differ
    from this model's predictions. Where several operators share one name (scans of several formats), the one with most
    time gives the factor.
    """
    known = known_operators()
    scores: dict[str, tuple[float, float]] = {}
    left_out, notes = [], []
    for term in model.terms:
        names = [name for part in term.operator.split(" + ") for name in exec_names(part) if name in known]
        if not names:
            left_out.append(term.operator)
            continue
        if " + " in term.operator:
            notes.append(f"{term.operator} could not be told apart and have one factor")
        for name in names:
            best = (term.baseline_share, round(float(np.exp(term.log_factor)), 2))
            scores[name] = max(scores.get(name, best), best)
    if left_out:
        notes.append(f"not known there, left out: {', '.join(left_out)}")
    notes += factor_file.write_upstream(path, {name: max(score, 0.01) for name, (_, score) in scores.items()})
    return notes


def exec_names(operator: str) -> tuple[str, ...]:
    """What the original tools call an operator.

    Examples
    --------
    >>> exec_names("HashAggregate"), exec_names("Scan parquet")
    (('HashAggregateExec',), ('FileSourceScanExec', 'BatchScanExec'))
    """
    return EXECS.get(operator, (f"{operator}Exec",))


def export_parquet(model: FactorModel, path: str | Path) -> list[str]:
    """Write every term with its interval's ingredients, and the pair it comes from beside each; no notes."""
    import polars as pl

    from workbench.files import replacing

    about = {
        "baseline": model.baseline,
        "candidate": model.candidate,
        "n_queries_of_pair": model.n_queries,
        "n_baseline_sessions": model.n_baseline_sessions,
        "n_candidate_sessions": model.n_candidate_sessions,
        "created_at": model.created_at,
        "sources_sha256": [source.get("sha256") for source in model.sources],
    }
    rows = [{"factor": float(np.exp(term.log_factor)), **term.model_dump(), **about} for term in model.terms]
    with replacing(Path(path)) as temporary:
        pl.DataFrame(rows, infer_schema_length=None).write_parquet(temporary)
    return []
