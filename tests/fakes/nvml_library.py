"""A stand-in for NVIDIA's management library, since no machine of the tests has a GPU: what its functions write."""

from __future__ import annotations

import ctypes
from typing import Any

NOT_SUPPORTED = 3


class ManagementLibrary:
    """A library with one GPU; functions that are not here do not exist, as with older drivers."""

    def __init__(self, init: int = 0, reasons: int = 0x4 | 0x1, power: int = 0) -> None:
        self.init, self.reasons, self.power, self.open = init, reasons, power, 0

    def nvmlInit_v2(self) -> int:
        self.open += self.init == 0
        return self.init

    def nvmlShutdown(self) -> int:
        self.open -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, out: Any) -> int:
        return _write(out, 1)

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, out: Any) -> int:
        return 0 if index.value == 0 else 2

    def nvmlDeviceGetName(self, _: Any, text: Any, size: ctypes.c_uint) -> int:
        text.value = b"Made GPU"[: size.value]
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, _: Any) -> int:
        text.value = b"580.1"
        return 0

    def nvmlDeviceGetMemoryInfo(self, _: Any, out: Any) -> int:
        out._obj.total, out._obj.used = 80 << 30, 2 << 30
        return 0

    def nvmlDeviceGetUtilizationRates(self, _: Any, out: Any) -> int:
        out._obj.gpu = 87
        return 0

    def nvmlDeviceGetClockInfo(self, _: Any, kind: int, out: Any) -> int:
        return _write(out, {1: 1755, 2: 2619}[kind])

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, _: Any, out: Any) -> int:
        return _write(out, self.reasons)

    def nvmlDeviceGetPowerUsage(self, _: Any, out: Any) -> int:
        return _write(out, 650_250) or self.power


def _write(out: Any, value: int) -> int:
    out._obj.value = value
    return 0
