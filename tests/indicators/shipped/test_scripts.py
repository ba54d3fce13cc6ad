"""Every shipped script, as it is run: valid documents, refusals, and what is asked of all of them."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.indicators.shipped.making import document, ended, imported_names
from workbench.core import nvml
from workbench.indicators.contract.documents import MAX_STDOUT_BYTES, parse_document, validate_document
from workbench.indicators.contract.indicator import Indicator, field_metadata
from workbench.indicators.shipped.indicator_classes import (
    SCRIPTS,
    Conv1d,
    Hello,
    ImportTime,
    Matmul,
    ScalarLoop,
    Sort,
    Ufunc,
    list_shipped_indicators,
)

CASES = [
    (indicator, framework)
    for indicator in list_shipped_indicators()
    for framework in ("numpy", "pandas", "polars", "python", "pyarrow", "scipy")
    if framework in indicator.model_fields["framework"].annotation.__args__
]


def case_name(value: object) -> str:
    return value.__name__ if isinstance(value, type) else str(value)


@pytest.mark.live
@pytest.mark.parametrize(("indicator", "framework"), CASES, ids=case_name)
def test_a_run_gives_a_valid_document_whose_checks_pass(indicator: type[Indicator], framework: str) -> None:
    found = document(indicator, {"framework": framework})
    assert found.failed_checks == ()
    assert found.component == framework
    assert found.results["elapsed_ms"] > 0
    (build,) = found.build_info.values()
    assert build["version"].count(".") >= 1
    assert build["threads"] == 1
    if indicator is ImportTime:
        assert 20 < found.results["modules"] < 2_000


@pytest.mark.live
@pytest.mark.parametrize("indicator", list_shipped_indicators(), ids=case_name)
def test_a_scripts_own_defaults_are_those_of_its_class(indicator: type[Indicator]) -> None:
    done = ended(indicator, {})
    assert done.returncode == 0, done.stderr
    found = validate_document(parse_document(done.stdout.encode()), indicator)
    assert dict(found.parameters) == indicator.parameters()
    assert len(done.stdout) < MAX_STDOUT_BYTES / 20


@pytest.mark.parametrize("indicator", list_shipped_indicators(), ids=case_name)
def test_every_field_says_what_it_is_and_the_time_is_what_is_compared(indicator: type[Indicator]) -> None:
    assert [metric.field for metric in indicator.metrics()] == ["elapsed_ms"]
    assert (indicator.__doc__ or "").split("\n")[0].endswith("?")
    assert "Does not show" in (indicator.__doc__ or "") + "".join(base.__doc__ or "" for base in indicator.__mro__[1:3])
    for name, field in indicator.model_fields.items():
        assert field.description, name
        assert field_metadata(field)["role"]


@pytest.mark.live
@pytest.mark.parametrize("indicator", list_shipped_indicators(), ids=case_name)
def test_a_timed_script_tells_each_call_on_the_clock(indicator: type[Indicator]) -> None:
    if "reps" not in indicator.fields_of("parameter"):
        assert document(indicator).samples == {}
        return
    samples = document(indicator).samples["elapsed_ms"]
    assert len(samples) == 3
    assert document(indicator).results["elapsed_ms"] == sorted(samples)[1]
    if indicator is ScalarLoop:
        found = document(indicator, {"framework": "python", "reps": 4})
        middle = sorted(found.samples["elapsed_ms"])[1:3]
        assert found.results["elapsed_ms"] == pytest.approx(sum(middle) / 2, rel=1e-12)


@pytest.mark.live
@pytest.mark.parametrize(
    ("indicator", "variables", "sentence"),
    [
        (Sort, {"PI_N": "many"}, "Sort: PI_N is 'many'; a whole number is needed"),
        (Sort, {"PI_N": "0"}, "Sort: PI_N is 0; at least 1"),
        (Sort, {"PI_DTYPE": "text"}, "Sort: PI_DTYPE is 'text'; allowed: float64, float32, int64, int32"),
        (Sort, {"PI_FRAMEWORK": "c"}, "Sort: PI_FRAMEWORK is 'c'; allowed: numpy, torch, tensorflow, jax, cupy"),
        (Sort, {"PI_DEVICE": "gpu"}, "Sort: numpy computes on the cpu only; PI_DEVICE is gpu"),
        (Sort, {"PI_THREADS": "two"}, "Sort: PI_THREADS is 'two'; a whole number is needed"),
        (Sort, {"PI_REPS": "1001"}, "Sort: PI_REPS is 1001; at most 1000"),
        (Conv1d, {"PI_WIDTH": "4"}, "Conv1d: the filter is larger than the input: (5,) over (4,)"),
        (Ufunc, {"PI_MOST_ULP": "few"}, "Ufunc: PI_MOST_ULP is 'few'; a number is needed"),
    ],
)
def test_what_cannot_be_measured_ends_with_exit_code_2_and_one_sentence(
    indicator: type[Indicator], variables: dict[str, str], sentence: str
) -> None:
    done = ended(indicator, variables)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.strip().splitlines() == [sentence]


@pytest.mark.live
def test_a_framework_that_is_not_there_is_refused_by_name() -> None:
    absent = next(name for name in ("tensorflow", "jax", "torch") if importlib.util.find_spec(name) is None)
    done = ended(Matmul, {"PI_FRAMEWORK": absent})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Matmul: {absent} cannot be imported")


def with_module(indicator: type[Indicator], name: str, text: str) -> type[Indicator]:
    files = {**indicator.files, f"{name}.py": text}
    return type(indicator.__name__, (indicator,), {"files": files, "__doc__": "Beside a library of our own."})


@pytest.mark.live
def test_what_a_library_prints_does_not_end_up_in_the_document() -> None:
    chatty = with_module(Hello, "numpy", "import os\nprint('hi')\nos.write(1, b'ho')\nraise ImportError('no')")
    assert ended(chatty, {}).stdout == ""
    loud = "import os, sys\nos.write(1, b'from below')\nprint('from above')\narray = lambda values: Sum(values)\n"
    loud += "class Sum(list):\n    def __add__(self, other):\n        return self\n"
    done = ended(with_module(Hello, "numpy", loud), {})
    assert json.loads(done.stdout)["name"] == "Hello"
    assert "from below" in done.stderr
    assert "from above" in done.stderr


@pytest.mark.parametrize("path", [*sorted(SCRIPTS.glob("*.py")), Path(nvml.__file__)], ids=lambda path: path.name)
def test_scripts_run_on_python_3_9_and_import_only_what_every_stack_has(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    own = {one.stem for one in SCRIPTS.glob("_*.py")} | {"_nvml"}
    # numpy: only where the framework itself needs it.
    allowed = set(sys.stdlib_module_names) | own | {"numpy"}
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    assert {name.split(".")[0] for name in imported_names(tree)} <= allowed
    # A union in an annotation that is evaluated, and match, came later than 3.9.
    assert not any(isinstance(node, ast.Match) for node in ast.walk(tree))
    assert "from __future__ import annotations" in path.read_text()


def test_the_files_beside_a_script_are_those_it_imports() -> None:
    for indicator in list_shipped_indicators():
        sources = indicator.sources()
        named = {name for text in sources.values() for name in imported_names(ast.parse(text))}
        own = {f"{name}.py" for name in named if name.startswith("_") and not name.startswith("__")}
        assert own == set(sources) - {"script.py"}, indicator.__name__


# As much of torch as a product needs, by NumPy; what is asked of it is told at the end.
TORCH = """
import atexit, sys
import numpy
told = {"synchronized": 0}
atexit.register(lambda: sys.stderr.write(repr(told)))
__version__ = "0.0"
float64, float32, int64 = "float64", "float32", "int64"

class Tensor:
    def __init__(self, values):
        self.values = values
    def is_floating_point(self):
        return self.values.dtype.kind == "f"
    def double(self):
        return Tensor(self.values.astype("float64"))
    def cpu(self):
        return self
    def numpy(self):
        return self.values
    def reshape(self, *shape):
        return Tensor(self.values.reshape(*shape))
    def clone(self):
        return Tensor(self.values.copy())
    def to(self, where):
        if where in ("cpu", "cuda"):
            told["place"] = where
            return self
        return Tensor(self.values.astype(where))

class Event:
    now_ms = 0.0
    def __init__(self, enable_timing):
        told["events"] = told.get("events", 0) + 1
    def record(self):
        Event.now_ms += 0.25
        self.at_ms = Event.now_ms
    def elapsed_time(self, other):
        return other.at_ms - self.at_ms

class version:
    cuda = "13.0"

class backends:
    class cudnn:
        allow_tf32 = True
    class cuda:
        class matmul:
            allow_tf32 = False

class cuda:
    Event = Event
    @staticmethod
    def get_device_capability():
        return 9, 0
    @staticmethod
    def is_available():
        return HAS_GPU
    @staticmethod
    def synchronize():
        told["synchronized"] += 1

class __config__:
    @staticmethod
    def show():
        return "made of NumPy"

def frombuffer(values, dtype):
    return Tensor(numpy.frombuffer(values, dtype=dtype))
def matmul(a, b):
    return Tensor(a.values @ b.values)
def set_grad_enabled(on):
    told["gradients"] = on
def set_num_threads(count):
    told["threads"] = count
def set_num_interop_threads(count):
    pass
"""


def with_torch(*, gpu: bool, device: str, dtype: str = "float32") -> subprocess.CompletedProcess[str]:
    given = {"FRAMEWORK": "torch", "DEVICE": device, "N": "4", "REPS": "3", "WARMUP": "2", "DTYPE": dtype}
    made = with_module(Matmul, "torch", TORCH.replace("HAS_GPU", str(gpu)))
    return ended(made, {"PI_THREADS": "1", **{f"PI_{name}": value for name, value in given.items()}})


@pytest.mark.live
def test_every_call_on_a_gpu_is_waited_for_and_gradients_are_off() -> None:
    done = with_torch(gpu=True, device="gpu")
    assert done.returncode == 0, done.stderr
    told = ast.literal_eval(done.stderr)
    # Two warm-up calls, three on the clock, and one wait for all of the calls in line.
    assert 3 < told.pop("events") <= 1001
    assert told == {"synchronized": 6, "gradients": False, "threads": 1, "place": "cuda"}
    found = validate_document(parse_document(done.stdout.encode()), Matmul)
    assert found.failed_checks == ()
    assert found.results["device_ms"] == 0.25
    build = dict(found.build_info["torch_buildinfo"])
    gpu = build.pop("gpu")
    assert "unknown" in gpu or gpu["name"]
    known = {"version": "0.0", "config": "made of NumPy", "threads": 1}
    assert build == {**known, "cuda": "13.0", "capability": "9.0", "device": "gpu"}


@pytest.mark.live
def test_auto_takes_the_gpu_where_there_is_one_and_says_which_it_took() -> None:
    for gpu, taken in ((True, "gpu"), (False, "cpu")):
        found = validate_document(parse_document(with_torch(gpu=gpu, device="auto").stdout.encode()), Matmul)
        assert found.build_info["torch_buildinfo"]["device"] == taken
        assert found.parameters["device"] == "auto"
        assert (found.results.get("device_ms") is not None) == gpu


@pytest.mark.live
def test_tfloat32_is_refused_on_the_processor_and_held_as_float32_on_a_gpu() -> None:
    done = with_torch(gpu=True, device="gpu", dtype="tfloat32")
    assert validate_document(parse_document(done.stdout.encode()), Matmul).failed_checks == ()
    refused = with_torch(gpu=False, device="auto", dtype="tfloat32")
    assert refused.returncode == 2
    assert refused.stderr.startswith("Matmul: tfloat32 is a mode of NVIDIA's GPUs")


@pytest.mark.live
def test_a_gpu_that_is_asked_for_is_never_replaced_by_the_processor() -> None:
    done = with_torch(gpu=False, device="gpu")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Matmul: torch finds no gpu; PI_DEVICE is gpu")
    assert ast.literal_eval(with_torch(gpu=True, device="cpu").stderr)["place"] == "cpu"
