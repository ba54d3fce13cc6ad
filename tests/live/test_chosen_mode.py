"""A notebook whose `live` is null measures only where somebody has it open in Jupyter, and where that is quick."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from workbench import live
from workbench.charts.renderer import SESSION_VARIABLE


class Quick(BaseModel):
    live: bool = False

    @classmethod
    def measures_by_default(cls) -> bool:
        return True


class Slow(BaseModel):
    live: bool = False


@pytest.mark.parametrize(
    ("model", "value", "is_open", "chosen"),
    [
        (Quick, None, True, True),
        (Quick, None, False, False),
        (Quick, False, True, False),
        (Quick, True, False, True),
        (Slow, None, True, False),
    ],
)
def test_null_is_a_choice_and_a_value_is_kept(
    monkeypatch: pytest.MonkeyPatch, model: type[BaseModel], value: bool | None, is_open: bool, chosen: bool
) -> None:
    monkeypatch.setattr(live, "is_live", lambda: True)
    monkeypatch.delenv(SESSION_VARIABLE, raising=False)
    if is_open:
        monkeypatch.setenv(SESSION_VARIABLE, "notebooks/04_indicators.ipynb")
    assert live.choose_mode(model, {"live": value}) == {"live": chosen}


def test_a_batch_run_that_a_notebook_started_shows_the_recording(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SESSION_VARIABLE, "notebooks/04_indicators.ipynb")
    monkeypatch.setenv("WORKBENCH_RUN_DIR", "run")
    assert live.choose_mode(Quick, {"live": None}) == {"live": False}
