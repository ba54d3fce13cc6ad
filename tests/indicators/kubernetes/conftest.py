"""Logs of a real session, made once: two rounds of two stacks and the control."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.indicators.kubernetes.making import Good, Pod, log_of, planned

# The control plane that the scale tests start for themselves serves here, too.
from tests.scaletest.conftest import _swept, local_cluster
from workbench.indicators.contract.indicator import Case

__all__ = ["_swept", "local_cluster", "logs"]


@pytest.fixture(scope="session")
def logs(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What the pods of both rounds printed."""
    folder: Path = tmp_path_factory.mktemp("logs")
    session = planned(folder, [Case.from_parameters(Good)])
    pod = Pod(folder / "pod", session, [Case.from_parameters(Good)])
    return [log_of(pod.round(number)) for number in range(2)]
