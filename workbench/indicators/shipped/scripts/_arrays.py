"""The same operations by each framework for arrays: made from the same numbers, waited for, given back as lists.

Nothing here decides what is measured; it only says how a framework is asked for it, without gradients, and how one
waits until its result is there: calls return before the device is done.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from array import array
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run

FLOATS = {"float64": 52, "float32": 23, "float16": 10}
"""Bits of the fraction, by type."""


class Numpy:
    """NumPy, and what the others do the same way."""

    name = "numpy"

    def __init__(self, run: Run) -> None:
        self.run = run
        self.device = run.parameters.get("device", "cpu")
        self.module = self.start(run)

    def start(self, run: Run) -> Any:
        """Import the framework and settle its device and threads."""
        if self.device != "cpu":
            run.refuse(f"numpy computes on the cpu only; PI_DEVICE is {self.device}")
        module = run.load("numpy")
        run.build.update(_blas(module))
        return module

    def array(self, values: array[Any], shape: Sequence[int], dtype: str) -> Any:
        """An array of these numbers on the device."""
        found = self.module.frombuffer(values, dtype="float64" if values.typecode == "d" else "int64")
        return found.astype(dtype).reshape(shape)

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function as the framework would run it in earnest."""
        return work

    def wait(self, found: Any) -> Any:
        """The result, when it is there."""
        return found

    def listed(self, found: Any) -> list[Any]:
        """All numbers of a result in order, as Python's own."""
        listed: list[Any] = found.ravel().tolist()
        return listed

    def matmul(self, a: Any, b: Any) -> Any:
        return self.module.matmul(a, b)

    def sort(self, x: Any) -> Any:
        return self.module.sort(x)

    def argsort(self, x: Any) -> Any:
        return self.module.argsort(x)

    def function(self, name: str) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] = getattr(self.module, name)
        return found

    def images(self, x: Any) -> Any:
        """Batch, positions…, channels: as the framework likes to have them."""
        return x

    def filters(self, w: Any) -> Any:
        """Positions…, channels in, channels out: as the framework likes to have them."""
        return w

    def conv(self, x: Any, w: Any, stride: int) -> Any:
        """Slide the filters over the positions, without padding."""
        sizes = w.shape[:-2]
        axes = tuple(range(1, 1 + len(sizes)))
        windows = self.module.lib.stride_tricks.sliding_window_view(x, sizes, axis=axes)
        windows = windows[(slice(None), *(slice(None, None, stride) for _ in sizes))]
        last = windows.ndim
        inner = [last - len(sizes) - 1, *range(last - len(sizes), last)]
        return self.module.tensordot(windows, w, axes=(inner, [len(sizes), *range(len(sizes))]))

    def channels_last(self, found: Any) -> Any:
        """A result of `conv` with its channels last."""
        return found


class Torch(Numpy):
    """PyTorch: channels first, gradients off."""

    name = "torch"

    def start(self, run: Run) -> Any:
        module = run.load("torch")
        module.set_grad_enabled(False)
        if run.threads:
            module.set_num_threads(run.threads)
            module.set_num_interop_threads(run.threads)
        if self.device == "gpu" and not module.cuda.is_available():
            run.refuse("torch finds no gpu; PI_DEVICE is gpu")
        run.build["config"] = module.__config__.show()[:2000]
        self.place = "cuda" if self.device == "gpu" else "cpu"
        return module

    def array(self, values: array[Any], shape: Sequence[int], dtype: str) -> Any:
        kind = self.module.float64 if values.typecode == "d" else self.module.int64
        found = self.module.frombuffer(values, dtype=kind).reshape(tuple(shape))
        # A copy, also where the type is the same: the buffer belongs to the list of numbers.
        return found.clone().to(getattr(self.module, dtype)).to(self.place)

    def wait(self, found: Any) -> Any:
        if self.place == "cuda":
            self.module.cuda.synchronize()
        return found

    def listed(self, found: Any) -> list[Any]:
        listed: list[Any] = found.reshape(-1).tolist()
        return listed

    def sort(self, x: Any) -> Any:
        return self.module.sort(x).values

    def images(self, x: Any) -> Any:
        return self.module.movedim(x, -1, 1).contiguous()

    def filters(self, w: Any) -> Any:
        return self.module.movedim(w, (-1, -2), (0, 1)).contiguous()

    def conv(self, x: Any, w: Any, stride: int) -> Any:
        functions = self.module.nn.functional
        return (functions.conv1d if w.ndim == 3 else functions.conv2d)(x, w, stride=stride)

    def channels_last(self, found: Any) -> Any:
        return self.module.movedim(found, 1, -1)


class Tensorflow(Numpy):
    """TensorFlow 2, eagerly."""

    name = "tensorflow"

    def start(self, run: Run) -> Any:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        module = run.load("tensorflow")
        if run.threads:
            module.config.threading.set_intra_op_parallelism_threads(run.threads)
            module.config.threading.set_inter_op_parallelism_threads(run.threads)
        if self.device == "gpu" and not module.config.list_physical_devices("GPU"):
            run.refuse("tensorflow finds no gpu; PI_DEVICE is gpu")
        run.build.update({key: str(value)[:200] for key, value in module.sysconfig.get_build_info().items()})
        self.place = f"/{self.device.upper()}:0"
        return module

    def array(self, values: array[Any], shape: Sequence[int], dtype: str) -> Any:
        import numpy as np

        # TensorFlow itself needs NumPy.
        found = np.frombuffer(values, dtype="float64" if values.typecode == "d" else "int64")
        with self.module.device(self.place):
            return self.module.constant(found.astype(dtype).reshape(shape))

    def wait(self, found: Any) -> Any:
        found.numpy()
        return found

    def listed(self, found: Any) -> list[Any]:
        listed: list[Any] = found.numpy().ravel().tolist()
        return listed

    def matmul(self, a: Any, b: Any) -> Any:
        return self.module.linalg.matmul(a, b)

    def function(self, name: str) -> Callable[[Any], Any]:
        found: Callable[[Any], Any] = getattr(self.module.math, name)
        return found

    def conv(self, x: Any, w: Any, stride: int) -> Any:
        functions = self.module.nn
        return (functions.conv1d if len(w.shape) == 3 else functions.conv2d)(x, w, stride, "VALID")


class Jax(Numpy):
    """JAX, compiled; 64-bit types are switched on, because they are asked for by name."""

    name = "jax"

    def start(self, run: Run) -> Any:
        os.environ["JAX_ENABLE_X64"] = "1"
        if self.device == "cpu":
            os.environ["JAX_PLATFORMS"] = "cpu"
        module = run.load("jax")
        try:
            self.place = module.devices(self.device)[0]
        except RuntimeError as error:
            run.refuse(f"jax finds no {self.device}: {str(error)[:200]}")
        run.build["jaxlib"] = importlib.import_module("jaxlib").__version__
        self.lax = module.lax
        self.jax = module
        return module.numpy

    def array(self, values: array[Any], shape: Sequence[int], dtype: str) -> Any:
        import numpy as np

        found = np.frombuffer(values, dtype="float64" if values.typecode == "d" else "int64")
        return self.jax.device_put(found.astype(dtype).reshape(shape), self.place)

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        found: Callable[..., Any] = self.jax.jit(work)
        return found

    def wait(self, found: Any) -> Any:
        return found.block_until_ready()

    def conv(self, x: Any, w: Any, stride: int) -> Any:
        names = ("NWC", "WIO", "NWC") if w.ndim == 3 else ("NHWC", "HWIO", "NHWC")
        return self.lax.conv_general_dilated(x, w, (stride,) * (w.ndim - 2), "VALID", dimension_numbers=names)


def opened(run: Run) -> Numpy:
    """The framework that was asked for, ready on its device."""
    kinds = {kind.name: kind for kind in (Numpy, Torch, Tensorflow, Jax)}
    return kinds[run.choice("framework", tuple(kinds))](run)


def _blas(module: Any) -> dict[str, Any]:
    """Which linear algebra NumPy was built with, and which of its kernels it took for this processor.

    An OpenBLAS that is older than the processor takes a kernel of older ones, which may be several times slower.
    """
    try:
        found = module.show_config("dicts")["Build Dependencies"]["blas"]
        built = {"blas": f"{found.get('name')} {found.get('version')}"}
    except (TypeError, KeyError, ValueError):
        built = {}  # its version does not tell without printing
    kernel = _kernel()
    return built | ({"blas_kernel": kernel} if kernel else {})


def _kernel() -> str | None:
    """What the OpenBLAS that is loaded calls its kernel; null where none is, or the system does not say."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps if "openblas" in line}
    except OSError:
        return None
    for path in sorted(paths):
        library = ctypes.CDLL(path)
        for name in ("scipy_openblas_get_corename64_", "openblas_get_corename64_", "openblas_get_corename"):
            if call := getattr(library, name, None):
                call.restype = ctypes.c_char_p
                return str(call().decode("ascii", "replace"))[:40]
    return None
