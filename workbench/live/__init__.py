"""Live notebooks in JupyterLab: settings, run button, runs and results around `workbench run`.

Headless, `configure_notebook` only validates the parameters, and the panel is not imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from pydantic import BaseModel

    Config = TypeVar("Config", bound=BaseModel)


def is_live() -> bool:
    """Whether the notebook is live; the same test as for charts."""
    from workbench.charts.renderer import is_headless, is_in_kernel

    return not is_headless() and is_in_kernel()


def choose_mode(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values with `live` chosen where it is null.

    In a notebook that somebody has open in Jupyter it is what the model's `measures_by_default` says: a measurement
    that takes under half a minute here. Everywhere else (batch runs, tests) it is false: a recording is shown.
    """
    if values.get("live", False) is not None:
        return dict(values)
    from workbench.charts.renderer import SESSION_VARIABLE

    measures = getattr(model, "measures_by_default", None)
    return {**values, "live": measures is not None and is_live() and SESSION_VARIABLE in os.environ and measures()}


def configure_notebook(area: str, model: type[Config], namespace: Mapping[str, Any]) -> Config:
    """Validate the settings of a notebook; live, show a panel to change them and to run the notebook.

    Parameters
    ----------
    area
        Area of the runs, as in `current_run`.
    model
        Pydantic model of the settings; each field is a parameter of the notebook.
    namespace
        The notebook's `globals()`, with the parameters.

    Returns
    -------
    An instance of `model`: headless from `namespace`, live from the panel. The panel keeps its values when the cell
    runs again, until the parameters cell changes.

    Raises
    ------
    ConfigError
        A parameter is missing, or the model refuses a value.
    """
    from workbench.live.form import select_values, validate_values

    values = choose_mode(model, select_values(model, namespace))
    if not is_live():
        return validate_values(model, values, area)
    from workbench.live.panel import get_panel

    panel = get_panel(area, model, values)
    panel.show()
    return validate_values(model, panel.read_values(), area)
