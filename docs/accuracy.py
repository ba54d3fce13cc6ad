"""Write docs/accuracy.md: how far predictions of speedups were off, over all recordings.

python -m docs.accuracy             from the shipped recordings
python -m docs.accuracy DIR...      with more recordings beside them
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from workbench.core import files
from workbench.speedup.calibration.factors import RECORDING_MARK, strip_recording
from workbench.speedup.calibration.pair_calibration import (
    BY_LOG,
    CALIBRATED,
    CONSTANT,
    CalibrationResult,
    CrossValidation,
    bootstrap_error_intervals,
    calibrate_pair,
    compute_skill,
    cross_validate,
    measure_noise_variance,
)
from workbench.speedup.calibration.transfer import Transfer, try_on_other_recording
from workbench.speedup.comparison.pair import Pair, join_pairs, load_recorded_pair
from workbench.speedup.recording.recording_plan import JOURNAL, Recording, load_recording
from workbench.stats import wilson_interval

ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "data" / "samples" / "speedup"
PAGE = ROOT / "docs" / "accuracy.md"
PREDICTORS = (CALIBRATED, BY_LOG, CONSTANT)
LEVEL = 0.9
HEAD = """\
# How far are predictions of speedups off?

Made by `python -m docs.accuracy` from the recordings in `data/samples/speedup`.
Every prediction is of a query, or of a recording, that its factors know nothing of. Errors are logs of predicted over
measured time: 0.1 is about 10 %. The constant predicts one ratio for all queries. Skill is the share of what can be
explained that is explained: 0 for the constant, 1 where only the noise from session to session is left. "Log alone"
knows the baseline's log, "calibrated" the candidate's plan as well, which `workbench speedup plan` tells without a run.
Formulas: [guide](guide/speedup-method.md).

"""


@dataclass(frozen=True)
class Recorded:
    """A recording with its calibration."""

    name: str
    recording: Recording
    pair: Pair
    calibrated: CalibrationResult

    @property
    def engines(self) -> str:
        """Versions of both sides."""
        sides = []
        for label in (self.pair.baseline, self.pair.candidate):
            side = self.recording.find_side(label)
            versions = sorted({one.spark_version or "?" for one in self.recording.list_good_sessions(label)})
            jar = f", {side.jar.removesuffix('.jar').rsplit('-', 1)[-1]}" if side.jar else ""
            sides.append(f"{side.engine} ({', '.join(versions)}{jar})")
        return " / ".join(sides)


def load_all(folders: Sequence[Path]) -> list[Recorded]:
    """Recordings of two sides whose queries can be left out."""
    found = []
    for folder in folders:
        pair = load_recorded_pair(folder)
        calibrated = calibrate_pair(pair.measured, pair.baseline, pair.candidate)
        found.append(Recorded(folder.name, load_recording(folder), pair, calibrated))
    return found


def main(folders: Sequence[str]) -> None:
    """Write the page."""
    shipped = sorted(path.parent for path in SAMPLES.glob(f"*/{JOURNAL}"))
    recorded = load_all([*shipped, *map(Path, folders)])
    threshold = _choose_threshold(recorded)
    left_out = {one.name: cross_validate(one.calibrated, threshold=threshold) for one in recorded}
    carried = {
        (first.name, second.name): try_on_other_recording(first.calibrated, second.pair, second.calibrated)
        for first, second in itertools.permutations(recorded, 2)
    }
    parts = [HEAD, _format_recordings(recorded), _format_left_out(left_out)]
    parts += [_format_joined(recorded, left_out), _format_recommended(left_out, threshold)]
    parts += [_format_carried({one.name: one for one in recorded}, carried)] if carried else []
    files.write_text(PAGE, "\n".join(parts).rstrip() + "\n")


def _choose_threshold(recorded: Sequence[Recorded]) -> float:
    """Ratio that about half of all queries truly reach: their median, in quarters."""
    ratios = np.concatenate([one.calibrated.pairs["ratio"].to_numpy() for one in recorded])
    return round(float(np.median(ratios)) * 4) / 4


def _format_recordings(recorded: Sequence[Recorded]) -> str:
    rows = []
    for one in recorded:
        noise = measure_noise_variance(one.calibrated)
        started = min(session.started_at for session in one.recording.sessions)
        sessions = " / ".join(
            str(len(one.recording.list_good_sessions(label))) for label in (one.pair.baseline, one.pair.candidate)
        )
        ratio = one.calibrated.overall
        rows.append(
            (
                one.name,
                f"{started:%Y-%m-%d}",
                one.engines,
                str(len(one.calibrated.queries)),
                sessions,
                f"{ratio.estimate:.2f}" + ("" if ratio.low is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"),
                "-" if noise is None else f"{noise:.4f}",
            )
        )
    names = ("recording", "day", "engines (Spark, release)", "queries", "sessions", "ratio [90 %]", "noise v")
    return "## Recordings\n\n" + _format_table(names, rows)


def _format_left_out(left_out: dict[str, CrossValidation]) -> str:
    rows = []
    for name, predictor, score in _iterate_scores({name: one.scores for name, one in left_out.items()}):
        over = f"{score['mean_over_constant']:.2f}"
        if predictor != CONSTANT:
            over += f" [{score['mean_over_constant_low']:.2f}, {score['mean_over_constant_high']:.2f}]"
        rows.append(
            (
                name,
                predictor,
                f"{score['mean_absolute_log_error']:.3f}",
                over,
                "-" if score["skill"] is None else f"{score['skill']:.2f}",
                f"{score['n_covered']} of {score['n_queries']}",
                f"{score['mean_interval_score']:.2f}",
                f"{score['worst_absolute_log_error']:.2f} ({score['worst_query']})",
            )
        )
    names = ("recording", "predictor", "error", "of the constant's [90 %]", "skill", "held", "interval score", "worst")
    return "## Queries left out\n\n" + _format_table(names, rows)


def _format_joined(recorded: Sequence[Recorded], left_out: dict[str, CrossValidation]) -> str:
    """Queries left out of all recordings of the same engines together, beside those left out of their own alone."""
    rows = []
    for engines in dict.fromkeys(one.engines for one in recorded):
        members = {one.name: one.pair for one in recorded if one.engines == engines}
        if len(members) < 2:
            continue
        joined = join_pairs(members)
        together = cross_validate(calibrate_pair(joined.measured, joined.baseline, joined.candidate)).validation
        rows += [_compare_joined(name, together, left_out[name]) for name in members]
    if not rows:
        return ""
    names = ("recording", "error alone", "together", "together over alone [90 %]", "skill", "held", "worst")
    text = (
        "## Several recordings together\n\nFactors of all recordings of the same engines (`workbench speedup generate "
        "RECORDING...`). A query is left out of all of them, also where it ran at another scale.\n\n"
    )
    return text + _format_table(names, rows)


def _compare_joined(name: str, together: pl.DataFrame, alone: CrossValidation) -> tuple[str, ...]:
    """Row of a recording: errors of its queries, with the candidate's plan, by joined factors and by its own."""
    own = alone.validation.filter(pl.col("predictor") == CALIBRATED).sort("query")
    of_all = together.filter(pl.col("predictor") == CALIBRATED, pl.col("query").str.ends_with(RECORDING_MARK + name))
    rows = of_all.with_columns(pl.col("query").map_elements(strip_recording, pl.String)).sort("query")
    errors, before = (frame["log_error"].abs().to_numpy() for frame in (rows, own))
    *_, low, high = bootstrap_error_intervals(errors, before, LEVEL, 0)
    score = alone.scores.row(by_predicate=pl.col("predictor") == CONSTANT, named=True)
    skill = compute_skill(float((errors**2).mean()), score["mean_squared_log_error"], score["noise_variance"])
    worst = int(errors.argmax())
    return (
        name,
        f"{before.mean():.3f}",
        f"{errors.mean():.3f}",
        f"{errors.mean() / before.mean():.2f} [{low:.2f}, {high:.2f}]",
        "-" if skill is None else f"{skill:.2f}",
        f"{int(rows['covered'].sum())} of {rows.height}",
        f"{errors[worst]:.2f} ({rows['query'][worst]})",
    )


def _format_recommended(left_out: dict[str, CrossValidation], threshold: float) -> str:
    """Precision and recall of recommending, pooled over recordings."""
    rows = []
    n_queries = n_all_reached = 0
    for predictor in PREDICTORS:
        scores = [
            one.scores.row(by_predicate=pl.col("predictor") == predictor, named=True) for one in left_out.values()
        ]
        n_recommended, n_reached = (sum(score[name] for score in scores) for name in ("n_recommended", "n_reached"))
        n_right = round(sum((score["precision"] or 0.0) * score["n_recommended"] for score in scores))
        n_queries, n_all_reached = sum(score["n_queries"] for score in scores), n_reached
        rows.append((predictor, _format_share(n_right, n_recommended), _format_share(n_right, n_reached)))
    text = (
        f"## Recommended queries\n\nA query is recommended where its predicted ratio reaches {threshold:g}, which "
        f"{n_all_reached} of {n_queries} queries truly do (the median of all, in quarters). Left out:\n\n"
    )
    return text + _format_table(("predictor", "precision [90 %]", "recall [90 %]"), rows)


def _format_share(n: int, total: int) -> str:
    if not total:
        return "-"
    low, high = wilson_interval(n / total, total, level=LEVEL)
    return f"{100 * n / total:.0f} % ({n} of {total}) [{100 * low:.0f} %, {100 * high:.0f} %]"


def _format_carried(recorded: dict[str, Recorded], carried: dict[tuple[str, str], Transfer]) -> str:
    rows = []
    for (first, second), transfer in carried.items():
        score = transfer.scores.row(by_predicate=pl.col("predictor") == CALIBRATED, named=True)
        predicted, low, high, actual = transfer.total_s
        rows.append(
            (
                f"{first} to {second}",
                ", ".join(_list_differences(recorded[first], recorded[second])),
                f"{score['mean_absolute_log_error']:.3f}",
                f"{score['mean_over_constant']:.2f} "
                f"[{score['mean_over_constant_low']:.2f}, {score['mean_over_constant_high']:.2f}]",
                f"{score['n_covered']} of {score['n_queries']}",
                f"{predicted:.1f} [{low:.1f}, {high:.1f}] / {actual:.1f}{'' if transfer.is_total_held else ' missed'}",
            )
        )
    total = "total predicted [90 %] / measured (s)"
    names = ("from and to", "other", "error", "of the constant's [90 %]", "held", total)
    same = {key: one for key, one in carried.items() if recorded[key[0]].engines == recorded[key[1]].engines}
    others = {key: one for key, one in carried.items() if key not in same}
    text = (
        "## Carried over\n\nFactors of one recording on another; the constant is the first one's ratio. On recordings"
        f" of the same versions of both engines, {_count_held(same)}; of others, {_count_held(others)}: factors of one"
        " version do not tell another's.\n\n"
    )
    return text + _format_table(names, rows)


def _count_held(carried: dict[tuple[str, str], Transfer]) -> str:
    """How many measured times of queries, and totals, lay in their intervals."""
    scores = [one.scores.row(by_predicate=pl.col("predictor") == CALIBRATED, named=True) for one in carried.values()]
    covered, n_queries = (sum(score[name] for score in scores) for name in ("n_covered", "n_queries"))
    held = sum(one.is_total_held for one in carried.values())
    return f"intervals held {_format_share(covered, n_queries)} of the queries, and {held} of {len(carried)} totals"


def _list_differences(first: Recorded, second: Recorded) -> Iterator[str]:
    """What differs between two recordings beside the day."""
    if first.recording.suite.name != second.recording.suite.name:
        yield "suite"
    if first.recording.data.scale != second.recording.data.scale:
        yield "scale"
    if first.engines != second.engines:
        yield "engines"
    yield "session"


def _iterate_scores(scores: dict[str, pl.DataFrame]) -> Iterator[tuple[str, str, dict[str, float]]]:
    for name, frame in scores.items():
        for predictor in PREDICTORS:
            yield name, predictor, frame.row(by_predicate=pl.col("predictor") == predictor, named=True)


def _format_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


if __name__ == "__main__":
    main(sys.argv[1:])
