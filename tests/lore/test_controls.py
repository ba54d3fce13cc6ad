"""Operators to pick from: refused ones greyed with their reason, a press dumps, replays and draws; errors are said."""

from __future__ import annotations

from typing import Any

import pytest
from IPython.utils.capture import capture_output

from tests.lore import outcomes
from workbench import theme
from workbench.errors import ConfigError
from workbench.lore.controls import MOST_OPERATORS, Controls, operators, ratios_of
from workbench.lore.outcome import Outcome


class StandIn:
    """A study whose other operators are replayed at once."""

    def __init__(self, plan: Any = outcomes.CHAIN, error: Exception | None = None) -> None:
        self.plan, self.error = plan, error
        self.result = outcomes.outcome()
        self.asked: list[tuple[int, int | None]] = []

    def other(self, lore_id: int, partition: int | None, say: Any) -> Outcome:
        say(f"dumping loreId {lore_id} …")
        self.asked.append((lore_id, partition))
        if self.error is not None:
            raise self.error
        return outcomes.outcome(outcomes.replayed({"replay": (1.0, 2.0, 3.0)}))


def made(**changed: Any) -> tuple[Controls, Any]:
    study: Any = StandIn(**changed)
    return Controls(study), study


def test_operators_that_can_be_dumped_are_buttons_and_the_replayed_one_is_marked() -> None:
    controls, _ = made()
    assert sorted(controls.buttons) == [1, 2, 3, 4]
    assert [number for number, button in controls.buttons.items() if button.button_style] == [3]


def test_a_refused_operator_is_greyed_with_its_reason() -> None:
    controls, _ = made()
    button, words = controls.lines[-1].children
    assert button.disabled
    assert button.tooltip == "it is a leaf: it has no input but its source"
    assert "it is a leaf" in words.value


def test_deeper_operators_are_indented_more() -> None:
    controls, _ = made()
    margins = [int(line.children[0].layout.margin.rpartition(" ")[2].removesuffix("px")) for line in controls.lines]
    assert margins == sorted(set(margins))


def test_a_press_dumps_the_picked_operator_and_partition() -> None:
    controls, study = made()
    controls.buttons[2].click()
    controls.partition.value = " 1 "
    controls.go.click()
    assert study.asked == [(2, 1)]
    assert controls.result.sides["side"].to_list() == ["replay"]
    assert not controls.go.disabled


def test_what_is_no_partition_is_said_and_nothing_is_dumped() -> None:
    controls, study = made()
    controls.partition.value = "first"
    controls.go.click()
    assert study.asked == []
    assert "whole number" in controls.sentence.value


def test_an_error_is_said_harmlessly_and_the_last_result_stays() -> None:
    controls, study = made(error=ConfigError("no such partition", found="<b>9</b>"))
    controls.go.click()
    assert controls.result is study.result
    assert "no such partition" in controls.sentence.value
    assert "<b>9</b>" not in controls.sentence.value
    assert not controls.go.disabled


def test_texts_of_a_plan_are_harmless() -> None:
    plan = outcomes.plan(("Filter", 3, 1, 1, "<img src=x onerror=alert(1)>"))
    controls, _ = made(plan=plan)
    assert "<img" not in controls.lines[0].children[1].value
    assert "<img" not in operators(plan).html


def test_a_huge_plan_shows_the_first_operators_and_counts_the_others() -> None:
    chain = [("Filter", 300 - place, 1, 1, None) for place in range(300)]
    controls, _ = made(plan=outcomes.plan(*chain))
    assert len(controls.lines) == MOST_OPERATORS
    assert "150 more operators" in controls.box().children[0].children[-1].value


class Canvas:
    """In place of what a page shows."""

    def __init__(self) -> None:
        self.views: list[Any] = []

    def update(self, view: Any) -> None:
        self.views.append(view)


def test_shown_live_it_draws_what_the_last_press_found() -> None:
    theme.enable()
    controls, _ = made()
    with capture_output():
        controls._ipython_display_()
    canvases = [Canvas() for _ in controls._shown]
    assert len(canvases) == 4
    controls._shown = canvases
    controls.go.click()
    answer, times, ratios, partitions = (canvas.views[-1] for canvas in canvases)
    assert "PASS, 7 rows row for row; 2 s" in str(answer)
    assert "Time of the operator" in str(times.to_dict())
    assert str(ratios) == ""
    assert "Rows by partition" in str(partitions.to_dict())


@pytest.mark.parametrize("sides", [{"replay": (1.0,)}, {}])
def test_without_two_sides_there_is_no_comparison_to_draw(sides: Any) -> None:
    assert ratios_of(outcomes.outcome(outcomes.replayed(sides))) is None


def test_two_sides_are_drawn_with_their_settings() -> None:
    assert "A: key=A" in str(ratios_of(outcomes.outcome()).to_dict())
