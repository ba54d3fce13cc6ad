"""What-if: factors set by hand change predictions, are kept in the run folder, and need no front end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from IPython.utils.capture import capture_output

from tests.fakes.planted import BASELINE, CANDIDATE, Design, planted
from workbench.charts import renderer, theme
from workbench.core.errors import InputError
from workbench.runs import run_folder
from workbench.speedup.attribution.time_pieces import Measured
from workbench.speedup.calibration import what_if as module
from workbench.speedup.calibration.pair_calibration import CalibrationResult, calibrate_pair
from workbench.speedup.calibration.prediction import select_counted_runs
from workbench.speedup.calibration.what_if import (
    STATE_FILE,
    FactorWhatIfControls,
    WhatIf,
    load_chosen_factors,
    parse_factors,
)

Both = tuple[Measured, CalibrationResult]


@pytest.fixture(scope="module")
def both() -> Both:
    measured = planted(Design(n_queries=6, n_sessions=3), seed=1)
    return select_counted_runs(measured, BASELINE), calibrate_pair(measured, BASELINE, CANDIDATE)


def made(both: Both, **options: Any) -> WhatIf:
    side, calibrated = both
    return WhatIf(calibrated.model, side, calibrated.pairs, **options)


def live_run(out: Path, **config: Any) -> run_folder.Run:
    return run_folder.start_run("speedup", out, config=config, command=module.LIVE_COMMAND)


def predicted(steps: pl.DataFrame) -> dict[str, float]:
    return dict(steps.filter(pl.col("kind") == "predicted").select("query", "time_s").iter_rows())


def test_a_larger_factor_makes_every_query_with_the_operator_faster(both: Both) -> None:
    what_if = made(both)
    before = predicted(what_if.build_steps())
    what_if.set_factor("HashAggregate", 10 * what_if.measured["HashAggregate"])
    after = predicted(what_if.build_steps())
    with_it = set(what_if.build_steps().filter(pl.col("what") == "HashAggregate")["query"])
    assert with_it
    assert all(after[query] < before[query] for query in with_it)
    assert all(after[query] == pytest.approx(before[query]) for query in set(before) - with_it)


def test_the_sentence_tells_the_change_until_the_factor_is_put_back(both: Both) -> None:
    what_if = made(both)
    assert what_if.answer.startswith("With the measured factors, fast is predicted to run the 6 queries at ")
    what_if.set_factor("Sort", 9.0)
    assert what_if.answer.startswith("With Sort 9.00, fast is predicted")
    assert "with the measured factors" in what_if.answer
    what_if.set_factor("Sort", what_if.measured["Sort"] * 1.0001)
    assert what_if.chosen == {}


def test_unknown_operators_and_factors_that_are_none_are_refused(both: Both) -> None:
    with pytest.raises(InputError, match="HashAggregate"):
        made(both, chosen={"HashAgregate": 2.0})
    with pytest.raises(InputError, match="not a factor"):
        made(both).set_factor("Sort", 0.0)


@pytest.mark.parametrize("text", ["Sort", "=2", "Sort=fast", "Sort=inf", "Sort=nan", ""])
def test_texts_that_set_no_factor_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="not a what-if factor"):
        parse_factors([text])


def test_names_may_hold_a_sign_and_come_once() -> None:
    assert parse_factors(["a=b=2"]) == {"a=b": 2.0}
    with pytest.raises(InputError, match="twice"):
        parse_factors(["Sort=1", "Sort=2"])


def test_what_is_chosen_is_kept_and_a_new_kernel_goes_on_from_it(both: Both, tmp_path: Path) -> None:
    first = made(both, run=live_run(tmp_path, recording="a"))
    first.set_factor("Sort", 4.0)
    assert json.loads((first.run.folder / STATE_FILE).read_text())["factors"] == {"Sort": 4.0}
    assert made(both, run=live_run(tmp_path, recording="a")).chosen == {"Sort": 4.0}
    assert made(both, run=first.run).chosen == {"Sort": 4.0}


def test_what_is_kept_belongs_to_its_parameters_and_gives_way_to_what_is_given_or_reset(
    both: Both, tmp_path: Path
) -> None:
    run = live_run(tmp_path, recording="a")
    made(both, run=run).set_factor("Sort", 4.0)
    assert made(both, run=live_run(tmp_path, recording="b")).chosen == {}
    batch = run_folder.start_run("speedup", tmp_path, config={"recording": "a"}, command="workbench run 01_speedup")
    assert made(both, run=batch).chosen == {}
    given = made(both, run=run, chosen={"Filter": 2.0})
    assert given.chosen == {"Filter": 2.0}
    given.reset_factors()
    assert made(both, run=live_run(tmp_path, recording="a")).chosen == {}


def test_kept_factors_of_operators_that_are_gone_are_dropped(both: Both, tmp_path: Path) -> None:
    run = live_run(tmp_path)
    (run.folder / STATE_FILE).write_text('{"format_version": 1, "factors": {"Gone": 2.0, "Sort": 3.0}}')
    assert made(both, run=run).chosen == {"Sort": 3.0}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"factors": 3}', '{"factors": {"Sort": "x"}}', "[" * 200_000, '{"factors": null}']
)
def test_a_damaged_choice_counts_as_none(tmp_path: Path, content: str) -> None:
    run = live_run(tmp_path)
    (run.folder / STATE_FILE).write_text(content)
    assert load_chosen_factors(run) == {}


def test_sliders_stand_at_the_measured_factors_and_hold_them_in_their_range(both: Both) -> None:
    what_if = made(both, chosen={"Sort": 50.0})
    controls = FactorWhatIfControls(what_if)
    assert controls.sliders["HashAggregate"].value == pytest.approx(what_if.measured["HashAggregate"])
    assert controls.sliders["Sort"].value == pytest.approx(50.0)
    for slider in controls.sliders.values():
        assert 10**slider.min <= min(0.25, slider.value)
        assert 10**slider.max >= max(10.0, slider.value)


def test_a_moved_slider_predicts_again_keeps_the_choice_and_draws(both: Both, tmp_path: Path) -> None:
    what_if = made(both, run=live_run(tmp_path))
    controls, drawn = FactorWhatIfControls(what_if), Canvas()
    controls._chart = drawn
    controls.sliders["Sort"].value = 8.0
    assert what_if.chosen == {"Sort": pytest.approx(8.0)}
    assert json.loads((what_if.run.folder / STATE_FILE).read_text())["factors"]["Sort"] == pytest.approx(8.0)
    assert "With Sort 8.00" in controls.sentence.value
    assert "1 changed factor" in drawn.last.to_dict()["title"]["subtitle"]


def test_the_button_puts_all_sliders_back_and_draws_once(both: Both) -> None:
    what_if = made(both, chosen={"Sort": 8.0, "Filter": 0.5})
    controls, drawn = FactorWhatIfControls(what_if), Canvas()
    controls._chart = drawn
    controls.reset.click()
    assert what_if.chosen == {}
    assert controls.sliders["Sort"].value == pytest.approx(what_if.measured["Sort"])
    assert drawn.count == 1


def test_another_query_is_drawn_when_it_is_chosen(both: Both) -> None:
    controls, drawn = FactorWhatIfControls(made(both)), Canvas()
    controls._chart = drawn
    other = next(name for name in controls.query.options if name != controls.query.value)
    controls.query.value = other
    assert drawn.last.to_dict()["params"][0]["value"] == other


def test_names_of_operators_are_no_markup(both: Both) -> None:
    what_if = made(both)
    what_if.measured["<b>"] = 1.0
    what_if.chosen = {"<b>": 2.0}
    what_if._mean_ratio = lambda overrides: 1.0  # type: ignore[method-assign]
    controls = FactorWhatIfControls.__new__(FactorWhatIfControls)
    controls.what_if, controls.sentence = what_if, type("Text", (), {"value": ""})()
    controls.update_answer()
    assert "<b>" not in controls.sentence.value
    assert "&lt;b&gt;" in controls.sentence.value


def test_headless_the_same_chart_and_the_factors_are_shown_without_controls(
    both: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    theme.enable_theme()
    monkeypatch.setattr(renderer, "is_headless", lambda: True)
    monkeypatch.setattr(FactorWhatIfControls, "show", lambda self: pytest.fail("controls without anybody to move them"))
    with capture_output() as captured:
        made(both).show()
    words = captured.stdout + "".join(str(output.data) for output in captured.outputs)
    assert "Factors that have sliders" in words


class Canvas:
    """In place of the chart that a page shows."""

    count = 0
    last: Any = None

    def update(self, chart: Any) -> None:
        self.count += 1
        self.last = chart
