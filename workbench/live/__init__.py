"""Notebooks live: a panel with settings, runs and results over `workbench run`; the run folder is its only store.

Headless nothing of it is imported but this file: `configured` then checks the parameters, and that is all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

    Config = TypeVar("Config", bound=BaseModel)


def is_live() -> bool:
    """May somebody look at this cell now? By the same test that charts are drawn by."""
    from workbench.renderer import in_kernel, is_headless

    return not is_headless() and in_kernel()


def configured(area: str, model: type[Config], given: Mapping[str, Any]) -> Config:
    """The notebook's settings, checked; live, below a panel that shows them, changes them and runs the notebook.

    Parameters
    ----------
    area
        Name of the notebook's runs, as in `runs.current`.
    model
        What may be set; each field is a parameter of the notebook.
    given
        The notebook's `globals()`, which hold the parameters.

    Returns
    -------
    An instance of `model`: headless from `given`; live what the panel shows now. The panel keeps its changes when the
    cell is run again, until the parameters cell itself changes.

    Raises
    ------
    ConfigError
        A parameter is missing, or the model refuses a value.
    """
    from workbench.live.checking import checked, taken

    values = taken(model, given)
    if not is_live():
        return checked(model, values, area)
    from workbench.live.panel import panel_of

    panel = panel_of(area, model, values)
    panel.show()
    return checked(model, panel.values(), area)
