"""The management library by a stand-in: what a GPU tells, what it does not, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.nvml_library import NOT_SUPPORTED, ManagementLibrary
from workbench.core import nvml


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    return lambda library: monkeypatch.setattr(nvml, "_load_library", lambda: library)


def test_what_a_gpu_tells_has_units_and_what_it_does_not_tell_is_null(loaded: Callable[[Any], None]) -> None:
    library = ManagementLibrary(power=NOT_SUPPORTED)
    loaded(library)
    with nvml.open_nvml() as opened:
        assert opened.count_gpus() == 1
        found = opened.read_gpu(0)
    assert found == {
        "name": "Made GPU",
        "driver": "580.1",
        "memory_bytes": 80 << 30,
        "memory_used_bytes": 2 << 30,
        "sm_clock_mhz": 1755,
        "max_sm_clock_mhz": None,
        "memory_clock_mhz": 2619,
        "power_w": None,
        "power_limit_w": None,
        "temperature_c": None,
        "busy": 0.87,
        "throttled": ["power limit"],
    }
    assert library.open == 0
    loaded(ManagementLibrary(reasons=0))
    with nvml.open_nvml() as opened:
        assert opened.read_gpu(0)["throttled"] == []
        assert opened.read_gpu(0)["power_w"] == 650.25


def test_a_gpu_or_a_library_that_is_not_there_says_so(loaded: Callable[[Any], None]) -> None:
    loaded(ManagementLibrary())
    with nvml.open_nvml() as opened, pytest.raises(nvml.NvmlError, match="no GPU 1"):
        opened.read_gpu(1)
    loaded(ManagementLibrary(init=9))
    with pytest.raises(nvml.NvmlError, match="does not start"), nvml.open_nvml():
        pass


def test_without_the_library_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARIES", ("libno-such-thing.so.1",))
    with pytest.raises(nvml.NvmlError, match=r"libnvidia-ml\.so\.1 is part of the driver"), nvml.open_nvml():
        pass


@pytest.mark.parametrize(("text", "index"), [("", 0), ("3", 3), ("2,0", 2), ("GPU-abc", 0), ("-1", 0)])
def test_the_first_visible_gpu_is_that_which_cuda_calls_0(
    monkeypatch: pytest.MonkeyPatch, text: str, index: int
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", text)
    assert nvml.pick_visible_gpu() == index
