"""The whole way from a session to an answer, on sessions whose truth is known."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from tests.indicators.recommendation import making
from tests.indicators.recommendation.making import NAMES, NUMPY, pair, recommended
from workbench.core.errors import ConfigError, InvalidResultError
from workbench.indicators.analysis.effects import compare_session
from workbench.indicators.recommendation import conclusion
from workbench.indicators.recommendation.recommendation_request import build_request
from workbench.stats import Interval, count_required_pairs, paired_log_ratio

BASE, OLD, NEW = NAMES["2.2.6"], NAMES["1.24.4"], NAMES["2.4.6"]
TRIG = "sin=0.8,matmul=0.2"


def test_with_the_check_it_is_left_out_and_the_sentence_says_why() -> None:
    found = making.numpy_session(failed_checks={(OLD, "Sin"): making.ULP})
    made = recommended(found, mix=TRIG)
    assert (made.answer.stack, made.answer.kind) == (BASE, "no difference")
    told = [one for stack, one in made.sentences if stack == OLD]
    assert [(one.type, one.message) for one in told] == [("ERROR", f"{OLD}: wrong answers: Sin: {making.ULP}")]
    assert len(told[0].evidence.runs) == 10


@pytest.mark.parametrize(
    ("mix", "stack", "kind"),
    [
        ("sort=1", BASE, "no difference"),
        ("loop=1", NEW, "better"),
        ("matmul=1", BASE, "no difference"),
        (None, NEW, "better"),
        # The fast wrong stack, without the check.
        (TRIG, OLD, "better"),
    ],
)
def test_the_answer_depends_on_the_mix(mix: str | None, stack: str, kind: str) -> None:
    made = recommended(making.numpy_session(), mix=mix)
    assert (made.answer.stack, made.answer.kind) == (stack, kind)


def test_the_ratio_is_the_geometric_mean_of_the_metrics_ratios() -> None:
    made = recommended(making.numpy_session(noise=1e-6), mix="loop=0.5,matmul=0.5")
    row = made.table.filter(pl.col("stack") == NEW).row(0, named=True)
    assert row["ratio"] == pytest.approx(0.9**-0.5, rel=1e-4)
    assert row["score"] == pytest.approx(math.log(row["ratio"]))


def test_the_control_is_no_candidate_and_the_baseline_is_one() -> None:
    made = recommended(making.numpy_session())
    assert made.table.height == 5
    assert "control" not in made.table["arm"].to_list()
    row = made.table.filter(pl.col("baseline")).row(0, named=True)
    assert (row["ratio"], row["low"], row["high"], row["verdict"]) == (1.0, 1.0, 1.0, "BASELINE")


def test_equal_stacks_make_no_difference_and_the_baseline_is_kept() -> None:
    session = making.plan(list(NUMPY.values()), ("Sort", "Matmul"))
    made = recommended(compare_session(making.observed(session, {})))
    assert (made.answer.stack, made.answer.kind) == (BASE, "no difference")
    assert made.answer.sentence.startswith(f"Equivalent within 2 %: keep {BASE} ")
    assert all(name in made.answer.sentence for name in NAMES.values())
    assert sum(made.table["p_best"]) == pytest.approx(1)
    assert set(made.table["p_near"]) == {1.0}


def test_a_baseline_that_beats_all_others_is_kept_and_a_margin_of_ones_own_replaces_that_of_the_metrics() -> None:
    made = recommended(pair(0.3))
    assert (made.answer.stack, made.answer.kind) == (BASE, "keep")
    assert "every other stack is worse" in made.answer.sentence
    assert recommended(pair(-0.1)).answer.stack == NEW
    wide = recommended(pair(-0.1), margin=0.2)
    assert (wide.answer.kind, wide.margin) == ("no difference", 0.2)


def test_what_is_not_decided_is_said_with_the_rounds_that_would_decide() -> None:
    made = recommended(pair(-0.03, noise=0.04, seed=1))
    assert (made.answer.stack, made.answer.kind) == (BASE, "not decided")
    row = made.table.filter(pl.col("stack") == NEW).row(0, named=True)
    assert row["verdict"] == "UNDECIDED"
    assert row["rounds_needed"] > 10
    # The mix is one metric here: the table of effects plans the same.
    effects = pair(-0.03, noise=0.04, seed=1).effects.filter(pl.col("stack") == NEW)
    assert effects["rounds_needed"].to_list() == [row["rounds_needed"]]
    assert made.answer.undecided == (NEW,)
    assert made.answer.sentence.startswith(f"Keep {BASE} for now: not decided for {NEW}, intervals reach ±")
    assert "wider than the 2 % margin" in made.answer.sentence
    assert f"about {row['rounds_needed']} rounds would likely decide" in made.answer.sentence


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((1.1, 1.2, 1.3), "20.0 % better than base (95 % interval 10.0 to 30.0 %, 7 rounds)"),
        ((0.7, 0.8, 0.9), "20.0 % worse than base (95 % interval 10.0 to 30.0 %, 7 rounds)"),
        ((0.98, 1.02, 1.06), "2.0 % better than base (95 % interval -2.0 to 6.0 %, 7 rounds)"),
        ((24.334, 32.879, 44.425), "32.9x better than base (95 % interval 24.3 to 44.4x, 7 rounds)"),
        ((0.1, 0.2, 0.25), "5x worse than base (95 % interval 4 to 10x, 7 rounds)"),
        ((None, 1.02, None), "2.0 % better than base (no interval, 7 rounds)"),
    ],
)
def test_an_effect_is_said_with_its_interval(ends: tuple[float | None, float, float | None], said: str) -> None:
    interval = Interval(ends[1], ends[0], ends[2], 0.95, 7, "by hand")
    stack = SimpleNamespace(baseline=False, predicted=False, rounds=7, interval=interval)
    assert conclusion._format_ratio(cast(Any, SimpleNamespace(stack=stack)), "base") == said


def test_the_rounds_needed_are_those_at_which_the_interval_would_clear_the_margin() -> None:
    interval = paired_log_ratio(np.exp([0.02, 0.04, 0.03, 0.05, 0.01]), np.ones(5), level=0.95)
    needed = count_required_pairs(interval, 0.02, 1)
    assert needed is not None
    spread = np.std([0.02, 0.04, 0.03, 0.05, 0.01], ddof=1)
    from scipy.special import stdtrit

    def half(n: int) -> float:
        return float(stdtrit(n - 1, 0.975) * spread / np.sqrt(n))

    away = 0.03 - math.log1p(0.02)
    assert half(needed) <= away < half(needed - 1)
    # A ratio at the margin itself is never decided.
    assert count_required_pairs(paired_log_ratio([1.01, 1.03, 1.02], [1, 1, 1], level=0.95), 0.02, 1) is None


def test_a_stack_as_good_as_the_recommended_one_is_named() -> None:
    session = making.plan([NUMPY[v] for v in ("2.2.6", "2.0.2", "2.4.6")], ("Sort",))
    logs = {(NAMES["2.0.2"], "Sort"): -0.2, (NEW, "Sort"): -0.205}
    made = recommended(compare_session(making.observed(session, logs, noise=0.003)))
    assert made.answer.stack in (NAMES["2.0.2"], NEW)
    assert set(made.answer.as_good) == {NAMES["2.0.2"], NEW} - {made.answer.stack}
    assert made.answer.as_good[0] in made.answer.sentence


def test_latest_takes_the_newest_versions_and_warns_where_they_are_slower() -> None:
    made = recommended(pair(0.3), type="latest")
    assert (made.answer.stack, made.answer.kind) == (NEW, "by type")
    warned = [one.message for stack, one in made.sentences if stack == NEW and one.type == "WARNING"]
    assert len(warned) == 1
    assert "SLOWER" in warned[0]
    # Versions are ordered as versions, not as texts.
    stacks = [making.stack({"numpy": v}) for v in ("2.9.0", "2.10.0", "1.99.0")]
    made = recommended(compare_session(making.observed(making.plan(stacks, ("Sort",)), {})), type="latest")
    assert made.table["stack"].to_list() == ["numpy 2.10.0", "numpy 2.9.0", "numpy 1.99.0"]


def test_testing_takes_what_more_runs_may_gain_most_from() -> None:
    session = making.plan([NUMPY[v] for v in ("2.2.6", "2.0.2", "2.4.6")], ("Sort",))
    found = making.observed(session, {(NAMES["2.0.2"], "Sort"): 0.5}, noise=0.02)
    made = recommended(compare_session(found), type="testing")
    assert made.answer.stack == NEW
    assert made.table["stack"].to_list()[-1] in (NAMES["2.0.2"], BASE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"design": "blocks"}, "measured in blocks"),
        ({"backend": "imported"}, "imported: the order of its runs"),
        ({"arms": 2}, "no control"),
    ],
)
def test_from_an_invalid_session_nothing_is_recommended(change: dict[str, object], said: str) -> None:
    session = making.plan([NUMPY["2.2.6"], NUMPY["2.4.6"]], ("Sort",))
    if "arms" in change:
        change = {"arms": session.arms[:2]}
    session = session.model_copy(update=change)
    made = recommended(compare_session(making.observed(session, {(NEW, "Sort"): -0.5})))
    assert (made.answer.stack, made.answer.kind, made.key) == (None, "nothing", None)
    assert made.answer.sentence.startswith("Nothing is recommended: ")
    assert said in made.answer.sentence
    assert made.table.height == 0
    assert [one.type for _, one in made.sentences] == ["ERROR"]
    assert made.sentences[0][1].evidence.runs


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("hardware_key", "other", "several machines"),
        ("threads", 2, "several thread counts"),
        ("indicator_version", "v2", "several versions of its indicator"),
    ],
)
def test_figures_of_several_machines_threads_or_versions_are_never_compared(
    column: str, value: object, said: str
) -> None:
    found = making.numpy_session()
    late = pl.when(pl.col("round") > 5).then(pl.lit(value)).otherwise(pl.col(column)).alias(column)
    runs = found.observed.runs.with_columns(late.cast(found.observed.runs.schema[column]))
    made = recommended(compare_session(replace(found.observed, runs=runs)))
    assert made.answer.stack is None
    assert said in made.answer.sentence


def test_a_session_without_a_single_value_is_measured_but_worth_nothing() -> None:
    found = pair(failed_runs={(name, "Sort"): range(10) for name in (BASE, NEW)})
    with pytest.raises(InvalidResultError) as caught:
        recommended(found)
    assert caught.value.exit_code == 1


def test_every_sentence_links_to_runs_that_are_there() -> None:
    found = making.numpy_session(failed_checks={(OLD, "Sin"): making.ULP})
    made = recommended(found, exclude=("numpy==2.0.2",), stacks=None)
    there = {
        f"inspections/{inspection}/results/{run}/result"
        for inspection, run in found.observed.runs.select("inspection_id", "run").iter_rows()
    }
    assert made.justifications.height == len(made.sentences) > 10
    for _, one in made.sentences:
        assert one.evidence.runs
        assert set(one.evidence.runs) <= there
        assert one.link in there
        assert one.evidence.session == found.observed.session.session_id
        assert one.evidence.hardware == "simulated"


def test_the_figures_of_a_sentence_are_those_of_the_effects() -> None:
    found = making.numpy_session()
    made = recommended(found)
    row = found.effects.filter((pl.col("stack") == NEW) & (pl.col("metric") == "Loop")).row(0, named=True)
    one = next(one for stack, one in made.sentences if stack == NEW and one.evidence.metric == "Loop")
    assert one.evidence.effect_pct == pytest.approx(100 * (row["ratio"] - 1))
    assert one.evidence.interval == pytest.approx((100 * (row["low"] - 1), 100 * (row["high"] - 1)))
    assert one.evidence.n_rounds == row["n"] == 10
    assert len(one.evidence.runs) == 20


def test_the_same_request_gives_the_same_result_and_another_seed_other_draws() -> None:
    found = making.numpy_session()
    first, second = (recommended(found, mix="matmul=1", seed=3) for _ in range(2))
    other = recommended(found, mix="matmul=1", seed=4)
    assert first.table.equals(second.table)
    assert not first.table.equals(other.table)
    assert first.table["ratio"].to_list() == other.table["ratio"].to_list()


def of_one_key(log: float) -> making.Comparison:
    """Two environments of the same versions, so of one key; the builds of the second differ."""
    session = making.plan([NUMPY["2.2.6"], NUMPY["2.4.6"]], ("Sort",))
    first = session.arms[0]
    same = {"stack_key": first.stack_key, "packages": first.packages}
    session = session.model_copy(update={"arms": tuple(arm.model_copy(update=same) for arm in session.arms)})
    return compare_session(making.observed(session, {(NEW, "Sort"): log}))


def test_two_sides_of_one_key_are_told_apart_by_their_runs() -> None:
    made = recommended(of_one_key(-math.log(2)))
    assert (made.answer.stack, made.answer.kind) == (NEW, "better")
    row = made.table.row(0, named=True)
    assert row["ratio"] == pytest.approx(2, rel=0.02)
    assert row["p_best"] == 1
    assert made.table["ratio"].to_list()[1] == 1


def test_two_sides_of_one_key_cannot_be_predicted_from() -> None:
    solved = making.stack_set(list(NUMPY.values()))
    with pytest.raises(ConfigError, match="several stacks have the same versions") as caught:
        recommended(of_one_key(-math.log(2)), stacks=solved, predict=True)
    assert BASE in str(caught.value)
    assert NEW in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [{"type": "fastest"}, {"margin": -0.1}, {"margin": 1.0}, {"min_age_days": -1}, {"nope": 1}, {"propose": 101}],
)
def test_a_request_that_makes_no_sense_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="recommendation request"):
        build_request(**settings)


def grid() -> tuple[making.StackSet, making.Comparison, list[str]]:
    """Nine stacks of two packages, five of them measured; b 3 with a 1 is the best, and was not."""
    stacks = {(a, b): making.stack({"a": f"{a}.0", "b": f"{b}.0"}) for a in (1, 2, 3) for b in (1, 2, 3)}
    measured = [(2, 2), (1, 1), (1, 2), (2, 3), (3, 2), (2, 1), (3, 3)]
    time = {1: -0.2, 2: 0.0, 3: 0.1}, {1: 0.1, 2: 0.0, 3: -0.25}
    session = making.plan([stacks[one] for one in measured], ("Sort",))
    logs = {(stacks[a, b].name, "Sort"): time[0][a] + time[1][b] for a, b in measured}
    ends = [stacks[one].name for one in ((1, 3), (3, 1))]
    return making.stack_set(list(stacks.values())), compare_session(making.observed(session, logs)), ends


def test_stacks_never_run_are_predicted_from_their_versions_and_say_so() -> None:
    stacks, found, (best, worst) = grid()
    made = recommended(found, stacks=stacks, predict=True, propose=3)
    proposed = made.proposals["stack"].to_list()
    assert proposed[0] == best
    assert len(set(proposed)) == len(proposed)
    assert not {BASE, worst} & set(proposed)
    assert made.table.height == 9
    row = made.table.filter(pl.col("stack") == best).row(0, named=True)
    assert (row["rank"], row["predicted"], row["n"], row["arm"]) == (1, True, 0, None)
    assert row["low"] < math.exp(0.45) < row["high"]
    assert made.table["stack"].to_list()[-1] == worst
    assert (made.answer.stack, made.answer.kind) == (best, "better")
    assert made.answer.sentence.startswith(f"Use {best}: ")
    assert "predicted" in made.answer.sentence
    warned = [one.message for stack, one in made.sentences if stack == best and one.type == "WARNING"]
    assert warned == [f"{best} was never run here: its figures are predicted and its answers unchecked"]
    assert all(one.evidence.runs and one.link for _, one in made.sentences)


def test_without_predict_they_are_counted_and_not_recommended_and_to_predict_they_are_needed() -> None:
    stacks, found, (best, _) = grid()
    made = recommended(found, stacks=stacks)
    assert made.unmeasured == 2
    assert best not in made.table["stack"].to_list()
    with pytest.raises(ConfigError, match="no stacks to predict"):
        recommended(found, predict=True)


def test_the_speed_of_wrong_answers_predicts_nothing() -> None:
    stacks, found, (best, _) = grid()
    wrong = {(name, "Sort"): "off" for name in found.observed.values["arm"].unique() if name.startswith("a 1.0")}
    session = found.observed.session
    again = compare_session(making.observed(session, {}, failed_checks=wrong))
    made = recommended(again, stacks=stacks, predict=True, propose=5)
    reasons = dict(made.excluded.select("stack", "reason").iter_rows())
    assert reasons[best] == "cannot be predicted: a 1.0 is in no measured stack with right answers"
    assert {name for name, _ in wrong} <= reasons.keys()
    assert best not in made.proposals["stack"].to_list()


def test_a_version_never_measured_is_not_predicted_but_may_be_proposed() -> None:
    stacks, found, _ = grid()
    unseen = making.stack({"a": "9.0", "b": "3.0"})
    more = stacks.model_copy(update={"stacks": (*stacks.stacks, unseen)})
    made = recommended(found, stacks=more, predict=True, propose=8)
    reasons = dict(made.excluded.select("stack", "reason").iter_rows())
    assert reasons == {unseen.name: "cannot be predicted: a 9.0 is in no measured stack with right answers"}
    assert all(one.evidence.runs for _, one in made.sentences)
    assert unseen.name in made.proposals["stack"].to_list()


def test_measured_stacks_keep_their_side_when_a_model_judges_them() -> None:
    stacks, found, _ = grid()
    paired, modelled = recommended(found, stacks=stacks), recommended(found, stacks=stacks, predict=True)
    both = paired.table.join(modelled.table, on="stack", suffix="_model")
    assert both.height == 7
    assert both["ratio_model"].to_list() == pytest.approx(both["ratio"].to_list(), rel=0.02)
    assert not any(both["predicted_model"])
