"""GPUs of this machine by NVIDIA's management library: clocks, power, load, memory, and why clocks are held back.

The library comes with the driver and is called by ctypes, so that nothing has to be installed: the scripts of
indicators, which run in environments of other people, lie beside a copy of this file. Standard library only, from
Python 3.9 on.
No serial number and no UUID is read: facts are kept in files that are shared.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Any

LIBRARIES = (
    "libnvidia-ml.so.1",
    "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1",
    "/usr/local/nvidia/lib64/libnvidia-ml.so.1",
    "/usr/lib/wsl/lib/libnvidia-ml.so.1",
)
"""Where it may be: known to the loader, or where drivers and containers put it."""
THROTTLE_REASONS = {
    0x4: "power limit",
    0x8: "hardware slowdown",
    0x20: "software, for heat",
    0x40: "hardware, for heat",
    0x80: "power brake",
}
"""Bits of NVML's clock event reasons that slow work down; idle and settings of clocks are none."""
_SUCCESS = 0
_TEXT_BYTES = 96
_GRAPHICS_SENSOR = 0
_SM, _MEMORY = 1, 2


class NvmlError(Exception):
    """There is no library, no GPU, or it does not answer; the text says which."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Nvml:
    """The library, started; what a GPU does not tell is null."""

    def __init__(self, library: Any) -> None:
        self._library = library
        if (code := library.nvmlInit_v2()) != _SUCCESS:
            raise NvmlError(f"NVIDIA's management library does not start (error {code})")

    def close(self) -> None:
        """End the use of the library."""
        self._library.nvmlShutdown()

    def count_gpus(self) -> int:
        """The GPUs that this process may see here, whatever CUDA_VISIBLE_DEVICES says."""
        return int(self._read_value("nvmlDeviceGetCount_v2", ctypes.c_uint) or 0)

    def read_gpu(self, index: int) -> dict[str, Any]:
        """Read the properties and the current state of a GPU.

        Returns: `name`, `driver`; `memory_bytes`, `memory_used_bytes`; `sm_clock_mhz`, `max_sm_clock_mhz`,
        `memory_clock_mhz`; `power_w` (as the driver averages it, over a second on recent ones), `power_limit_w`;
        `temperature_c`; `busy`, the share of the last moments (up to a second) in which any kernel ran; `throttled`,
        why clocks are held back now, [] for nothing.
        """
        handle = ctypes.c_void_p()
        code = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
        if code != _SUCCESS:
            raise NvmlError(f"no GPU {index} (error {code})")
        memory = self._read_value("nvmlDeviceGetMemoryInfo", _Memory, handle)
        load = self._read_value("nvmlDeviceGetUtilizationRates", _Utilization, handle)
        reasons = self._read_value("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong, handle)
        power_mw = self._read_value("nvmlDeviceGetPowerUsage", ctypes.c_uint, handle)
        limit_mw = self._read_value("nvmlDeviceGetEnforcedPowerLimit", ctypes.c_uint, handle)
        return {
            "name": self._read_text("nvmlDeviceGetName", handle),
            "driver": self._read_text("nvmlSystemGetDriverVersion"),
            "memory_bytes": memory.total if memory else None,
            "memory_used_bytes": memory.used if memory else None,
            "sm_clock_mhz": self._read_value("nvmlDeviceGetClockInfo", ctypes.c_uint, handle, _SM),
            "max_sm_clock_mhz": self._read_value("nvmlDeviceGetMaxClockInfo", ctypes.c_uint, handle, _SM),
            "memory_clock_mhz": self._read_value("nvmlDeviceGetClockInfo", ctypes.c_uint, handle, _MEMORY),
            "power_w": None if power_mw is None else power_mw / 1000,
            "power_limit_w": None if limit_mw is None else limit_mw / 1000,
            "temperature_c": self._read_value("nvmlDeviceGetTemperature", ctypes.c_uint, handle, _GRAPHICS_SENSOR),
            "busy": load.gpu / 100 if load else None,
            "throttled": None
            if reasons is None
            else [reason for bit, reason in THROTTLE_REASONS.items() if reasons & bit],
        }

    def _read_value(self, function: str, kind: Any, *arguments: Any) -> Any:
        """Return the value that a function writes to its last argument; null where this GPU or driver has none."""
        output = kind()
        try:
            code = getattr(self._library, function)(*arguments, ctypes.byref(output))
        except AttributeError:
            return None
        return getattr(output, "value", output) if code == _SUCCESS else None

    def _read_text(self, function: str, *arguments: Any) -> str | None:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        code = getattr(self._library, function)(*arguments, text, ctypes.c_uint(_TEXT_BYTES))
        return text.value.decode("ascii", "replace") if code == _SUCCESS else None


@contextlib.contextmanager
def open_nvml() -> Iterator[Nvml]:
    """The library while the block runs."""
    opened = Nvml(_load_library())
    try:
        yield opened
    finally:
        opened.close()


def pick_visible_gpu() -> int:
    """Number, by NVML, of the GPU that CUDA calls 0: the first of CUDA_VISIBLE_DEVICES, where that has numbers."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return int(first) if first.isdigit() else 0


def _load_library() -> Any:
    for path in LIBRARIES:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    raise NvmlError("NVIDIA's management library is missing (libnvidia-ml.so.1 is part of the driver)")
