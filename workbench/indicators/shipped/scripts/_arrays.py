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
    Numbers = array[Any]
    from workbench.indicators.shipped.scripts._measure import Run

FLOATS = {"float64": 52, "float32": 23, "tfloat32": 10, "float16": 10, "bfloat16": 7}
"""Bits of the fraction, by type."""
TF32 = "tfloat32"
"""A mode of NVIDIA's matrix units, no type: held as float32, of which 10 bits of the fraction are multiplied."""
MIN_QUEUED_MS = 300.0
MOST_QUEUED = 1000


class Numpy:
    """NumPy, and what the others do the same way."""

    name = "numpy"

    def __init__(self, run: Run) -> None:
        self.run = run
        self.device = run.parameters.get("device", "cpu")
        self.dtype = run.parameters.get("dtype", "float64")
        self.module = self.start(run)
        run.build["device"] = self.device
        if self.dtype == TF32 and self.device != "gpu":
            run.refuse("tfloat32 is a mode of NVIDIA's GPUs; PI_DEVICE is cpu")

    def start(self, run: Run) -> Any:
        """Import the framework and settle its device and threads."""
        if self.device == "gpu":
            run.refuse("numpy computes on the cpu only; PI_DEVICE is gpu")
        self.device = "cpu"
        if self.dtype in ("bfloat16", TF32):
            run.refuse(f"numpy has no {self.dtype}")
        module = run.load("numpy")
        run.build.update(_blas(module))
        return module

    def array(self, values: array[Any], shape: Sequence[int], dtype: str) -> Any:
        """An array of these numbers on the device."""
        numbers = self.module.frombuffer(values, dtype="float64" if values.typecode == "d" else "int64")
        return numbers.astype(dtype).reshape(shape)

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """The function as the framework would run it in earnest."""
        return work

    def wait(self, result: Any) -> Any:
        """The result, when it is there."""
        return result

    def listed(self, result: Any) -> Numbers:
        """All numbers of a result in order, as doubles or whole numbers."""
        return _packed(self.held(result))

    def held(self, result: Any) -> Any:
        """A result as NumPy holds it: of doubles where its own type is none of NumPy's."""
        return result

    def queued(self, work: Callable[[], Any], count: int) -> list[float] | None:  # noqa: ARG002
        """How long the device takes for each of so many calls that wait for it in line, in ms, by its own clock.

        While they wait, `facts` reads clocks and power under load. Null where there is no such clock.
        """
        return None

    def matmul(self, a: Any, b: Any) -> Any:
        return self.module.matmul(a, b)

    def sort(self, x: Any) -> Any:
        return self.module.sort(x)

    def argsort(self, x: Any) -> Any:
        return self.module.argsort(x)

    def function(self, name: str) -> Callable[[Any], Any]:
        operation: Callable[[Any], Any] = getattr(self.module, name)
        return operation

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

    def channels_last(self, result: Any) -> Any:
        """A result of `conv` with its channels last."""
        return result


class Torch(Numpy):
    """PyTorch: channels first, gradients off."""

    name = "torch"

    def start(self, run: Run) -> Any:
        module = run.load("torch")
        module.set_grad_enabled(False)
        if run.threads:
            module.set_num_threads(run.threads)
            module.set_num_interop_threads(run.threads)
        if self.device == "auto":
            self.device = "gpu" if module.cuda.is_available() else "cpu"
        if self.device == "gpu" and not module.cuda.is_available():
            run.refuse("torch finds no gpu; PI_DEVICE is gpu")
        run.build["config"] = module.__config__.show()[:2000]
        self.place = "cuda" if self.device == "gpu" else "cpu"
        # Convolutions are in TF32 where nobody says otherwise, and products are not: each type is what it says here.
        # That of products is left alone for float32, so that a stack's variable decides (and its error shows).
        module.backends.cudnn.allow_tf32 = self.dtype == TF32
        if self.dtype == TF32:
            module.backends.cuda.matmul.allow_tf32 = True
        if self.place == "cuda":
            run.build["cuda"] = str(module.version.cuda)
            run.build["capability"] = ".".join(map(str, module.cuda.get_device_capability()))
        return module

    def array(self, values: array[Any], shape: Sequence[int], dtype: str) -> Any:
        kind = self.module.float64 if values.typecode == "d" else self.module.int64
        numbers = self.module.frombuffer(values, dtype=kind).reshape(tuple(shape))
        # A copy, also where the type is the same: the buffer belongs to the list of numbers.
        return numbers.clone().to(getattr(self.module, _held_as(dtype))).to(self.place)

    def wait(self, result: Any) -> Any:
        if self.place == "cuda":
            self.module.cuda.synchronize()
        return result

    def held(self, result: Any) -> Any:
        return (result.double() if result.is_floating_point() else result).cpu().numpy()

    def queued(self, work: Callable[[], Any], count: int) -> list[float] | None:
        if self.place != "cuda":
            return None
        events = [self.module.cuda.Event(enable_timing=True) for _ in range(count + 1)]
        return _queue(
            work,
            events,
            lambda event: event.record(),
            lambda: read_gpu(self.run),
            self.module.cuda.synchronize,
            lambda begun, ended: float(begun.elapsed_time(ended)),
        )

    def sort(self, x: Any) -> Any:
        return self.module.sort(x).values

    def images(self, x: Any) -> Any:
        return self.module.movedim(x, -1, 1).contiguous()

    def filters(self, w: Any) -> Any:
        return self.module.movedim(w, (-1, -2), (0, 1)).contiguous()

    def conv(self, x: Any, w: Any, stride: int) -> Any:
        functions = self.module.nn.functional
        return (functions.conv1d if w.ndim == 3 else functions.conv2d)(x, w, stride=stride)

    def channels_last(self, result: Any) -> Any:
        return self.module.movedim(result, 1, -1)


class Tensorflow(Numpy):
    """TensorFlow 2, eagerly."""

    name = "tensorflow"

    def start(self, run: Run) -> Any:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        module = run.load("tensorflow")
        if run.threads:
            module.config.threading.set_intra_op_parallelism_threads(run.threads)
            module.config.threading.set_inter_op_parallelism_threads(run.threads)
        devices = module.config.list_physical_devices("GPU")
        if self.device == "auto":
            self.device = "gpu" if devices else "cpu"
        if self.device == "gpu" and not devices:
            run.refuse("tensorflow finds no gpu; PI_DEVICE is gpu")
        module.config.experimental.enable_tensor_float_32_execution(self.dtype == TF32)
        run.build.update({key: str(value)[:200] for key, value in module.sysconfig.get_build_info().items()})
        self.place = f"/{self.device.upper()}:0"
        return module

    def array(self, values: array[Any], shape: Sequence[int], dtype: str) -> Any:
        import numpy as np

        # TensorFlow itself needs NumPy.
        numbers = np.frombuffer(values, dtype="float64" if values.typecode == "d" else "int64")
        with self.module.device(self.place):
            return self.module.cast(self.module.constant(numbers.reshape(shape)), _held_as(dtype))

    def wait(self, result: Any) -> Any:
        result.numpy()
        return result

    def held(self, result: Any) -> Any:
        return (self.module.cast(result, "float64") if result.dtype.is_floating else result).numpy()

    def matmul(self, a: Any, b: Any) -> Any:
        return self.module.linalg.matmul(a, b)

    def function(self, name: str) -> Callable[[Any], Any]:
        operation: Callable[[Any], Any] = getattr(self.module.math, name)
        return operation

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
        if self.device == "auto":
            self.device = "gpu" if module.default_backend() == "gpu" else "cpu"
        try:
            self.place = module.devices(self.device)[0]
        except RuntimeError as error:
            run.refuse(f"jax finds no {self.device}: {str(error)[:200]}")
        # By default a GPU multiplies float32 as TF32.
        module.config.update("jax_default_matmul_precision", "tensorfloat32" if self.dtype == TF32 else "highest")
        run.build["jaxlib"] = importlib.import_module("jaxlib").__version__
        self.lax = module.lax
        self.jax = module
        return module.numpy

    def array(self, values: array[Any], shape: Sequence[int], dtype: str) -> Any:
        import numpy as np

        numbers = np.frombuffer(values, dtype="float64" if values.typecode == "d" else "int64")
        return self.jax.device_put(self.module.asarray(numbers.reshape(shape)).astype(_held_as(dtype)), self.place)

    def compiled(self, work: Callable[..., Any]) -> Callable[..., Any]:
        program: Callable[..., Any] = self.jax.jit(work)
        return program

    def wait(self, result: Any) -> Any:
        return result.block_until_ready()

    def held(self, result: Any) -> Any:
        import numpy as np

        return np.asarray(
            result.astype("float64") if self.module.issubdtype(result.dtype, self.module.floating) else result
        )

    def conv(self, x: Any, w: Any, stride: int) -> Any:
        names = ("NWC", "WIO", "NWC") if w.ndim == 3 else ("NHWC", "HWIO", "NHWC")
        return self.lax.conv_general_dilated(x, w, (stride,) * (w.ndim - 2), "VALID", dimension_numbers=names)


class Cupy(Numpy):
    """CuPy: NumPy's calls on a GPU."""

    name = "cupy"

    def start(self, run: Run) -> Any:
        if self.device == "cpu":
            run.refuse("cupy computes on a gpu only; PI_DEVICE is cpu")
        self.device = "gpu"
        if self.dtype == TF32:
            os.environ["CUPY_TF32"] = "1"
        module = run.load("cupy")
        try:
            n_gpus = module.cuda.runtime.getDeviceCount()
        except module.cuda.runtime.CUDARuntimeError as error:
            run.refuse(f"cupy finds no gpu: {str(error)[:200]}")
        if not n_gpus:
            run.refuse("cupy finds no gpu; PI_DEVICE is gpu")
        run.build["cuda"] = str(module.cuda.runtime.runtimeGetVersion())
        run.build["capability"] = ".".join(module.cuda.Device().compute_capability)
        return module

    def array(self, values: array[Any], shape: Sequence[int], dtype: str) -> Any:
        if dtype == "bfloat16":
            self.run.refuse("cupy's bfloat16 is not measured here: it multiplies it by way of other types")
        return self.module.asarray(super().array(values, shape, _held_as(dtype)))

    def wait(self, result: Any) -> Any:
        self.module.cuda.get_current_stream().synchronize()
        return result

    def held(self, result: Any) -> Any:
        return result.get()

    def queued(self, work: Callable[[], Any], count: int) -> list[float] | None:
        cuda = self.module.cuda
        return _queue(
            work,
            [cuda.Event() for _ in range(count + 1)],
            lambda event: event.record(),
            lambda: read_gpu(self.run),
            lambda: cuda.get_current_stream().synchronize(),
            lambda begun, ended: float(cuda.get_elapsed_time(begun, ended)),
        )

    def conv(self, x: Any, w: Any, stride: int) -> Any:  # noqa: ARG002
        self.run.refuse("cupy has no convolution over channels")


def opened(run: Run) -> Numpy:
    """The framework that was asked for, ready on its device."""
    kinds = {kind.name: kind for kind in (Numpy, Torch, Tensorflow, Jax, Cupy)}
    return kinds[run.choice("framework", tuple(kinds))](run)


def timed(run: Run, arrays: Numpy, work: Callable[[], Any]) -> float:
    """Time the work as `Run.time` does; on a GPU also by its own clock, without the call's way there and back.

    `device_ms` is the median of calls that wait in line for `MIN_QUEUED_MS` or more, `MOST_QUEUED` at most. Clocks and
    power, read while they run, stand with the build: a GPU that is held back computes more slowly than others of its
    name.
    """
    from _measure import median

    elapsed_ms = run.time(lambda: arrays.wait(work()))
    if arrays.device == "gpu":
        count = int(min(MOST_QUEUED, max(run.parameters["reps"], MIN_QUEUED_MS / max(elapsed_ms, 1e-3))))
        if times_ms := arrays.queued(work, count):
            run.results["device_ms"] = median(times_ms)
    return elapsed_ms


def read_gpu(run: Run) -> None:
    """Note what NVML says of the GPU now."""
    import _nvml  # type: ignore[import-not-found]

    try:
        with _nvml.open_nvml() as nvml:
            run.build["gpu"] = nvml.read_gpu(_nvml.pick_visible_gpu())
    except _nvml.NvmlError as error:
        run.build["gpu"] = {"unknown": str(error)[:200]}


def _queue(
    work: Callable[[], Any],
    events: Sequence[Any],
    record: Callable[[Any], Any],
    look: Callable[[], Any],
    wait: Callable[[], Any],
    between_ms: Callable[[Any, Any], float],
) -> list[float]:
    """The time between events around calls that are all sent before the first result is waited for."""
    record(events[0])
    for event in events[1:]:
        work()
        record(event)
    look()
    wait()
    return [between_ms(begun, ended) for begun, ended in zip(events, events[1:])]  # noqa: B905, RUF007


def _held_as(dtype: str) -> str:
    return "float32" if dtype == TF32 else dtype


def _packed(numbers: Any) -> array[Any]:
    """The numbers of a NumPy array, doubles or whole, without a Python object for each."""
    fractions = numbers.dtype.kind == "f"
    packed: array[Any] = array("d" if fractions else "q")
    packed.frombytes(numbers.astype("float64" if fractions else "int64").tobytes())
    return packed


def _blas(module: Any) -> dict[str, Any]:
    """Which linear algebra NumPy was built with, and which of its kernels it took for this processor.

    An OpenBLAS that is older than the processor takes a kernel of older ones, which may be several times slower.
    """
    try:
        blas = module.show_config("dicts")["Build Dependencies"]["blas"]
        built = {"blas": f"{blas.get('name')} {blas.get('version')}"}
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
