"""Indicators of Thoth's performance repository: their parameters, documents and units.

The scripts run as they are; their documents are held to these classes. Facts that are easily got wrong: `elapsed` is
in milliseconds for products and convolutions, in seconds for import and hello; padding is a number or a word; the
TensorFlow product repeats its work `mini_batch` times in what it calls one time; PyTorch's convolution over signals
calls itself PiConv2D. Scripts differ in their defaults: what is not given is left to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import create_model

from workbench.core.errors import InputError
from workbench.indicators.contract.indicator import Indicator, Value, parameter, result

Dtype = Literal["float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8"]
Device = Literal["cpu", "gpu"]
# fmt: off
_PYBENCH = (
    "built_in_function_calls", "built_in_method_lookup", "compare_floats", "compare_floats_integers",
    "compare_integers", "compare_interned_strings", "compare_longs", "compare_strings", "compare_unicode",
    "concat_strings", "concat_unicode", "create_instances", "create_new_instances", "create_strings_with_concat",
    "create_unicode_with_concat", "dict_creation", "dict_with_float_keys", "dict_with_integer_keys",
    "dict_with_string_keys", "for_loops", "if_then_else", "list_slicing", "nested_for_loops",
    "normal_class_attribute", "normal_instance_attribute", "python_function_calls", "python_method_calls",
    "recursion", "second_import", "second_package_import", "second_submodule_import", "simple_complex_arithmetic",
    "simple_dict_manipulation", "simple_float_arithmetic", "simple_int_float_arithmetic",
    "simple_integer_arithmetic", "simple_list_manipulation", "simple_long_arithmetic", "small_lists",
    "small_tuples", "special_class_attribute", "special_instance_attribute", "string_mappings", "string_predicates",
    "string_slicing", "try_except", "try_raise_except", "tuple_slicing", "unicode_mappings", "unicode_predicates",
    "unicode_properties", "unicode_slicing", "totals",
)
# fmt: on
_average: dict[str, Any] = {
    f"{name}_average": (float, result(unit="", better="lower" if name == "totals" else None)) for name in _PYBENCH
}
PiPyBench: type[Indicator] = create_model(
    "PiPyBench",
    __base__=Indicator,
    __module__=__name__,
    __doc__="""PyBench's averages; stacks are compared by their total alone. Documents do not state the unit.

    For documents of old archives: the package that the script needs is not in the index any more (the one of this
    name there is another).
    """,
    rounds=(int | None, parameter(None, env="ROUNDS", ge=1)),
    **_average,
)


class Legacy(Indicator):
    """A parameter that was not given is null: the script has a default of its own, which its document tells.

    `also` names more variables for a parameter: one script reads this, another that.
    """

    also: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    elapsed: float = result(unit="ms", better="lower", about="Median of the repetitions.")

    @classmethod
    def environment(cls, parameters: Mapping[str, Value]) -> dict[str, str]:
        """The variables of every script that goes by this name."""
        environment = super().environment(parameters)
        for name, variables in cls.also.items():
            if parameters.get(name) is not None:
                environment.update(dict.fromkeys(variables, str(parameters[name])))
        return environment


class PiMatmul(Legacy):
    """A product of two square matrices of ones; with `mini_batch`, so many products in one `elapsed`.

    Its rate is not compared: TensorFlow's script counts operations wrongly (about half), and from a time that is not
    waited for on a GPU nothing follows.
    """

    matrix_size: int | None = parameter(None, env="MATMUL_MATRIX_SIZE", ge=1, about="Rows and columns.")
    dtype: Dtype | None = parameter(None, env="MATMUL_DTYPE")
    device: Device | None = parameter(None, env="MATMUL_DEVICE")
    reps: int | None = parameter(None, env="MATMUL_REPS", ge=1, about="Times that the median is of.")
    mini_batch: int | None = parameter(None, env="MATMUL_MINI_BATCH", ge=1, about="Products in one time; null: one.")
    rate: float = result(unit="GFLOP/s", better="higher", derived=True)


class Convolution(Legacy):
    """Parameters and result that the old convolutions share."""

    also: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "dtype": ("MATMUL_DTYPE",),
        "input_channels": ("FILTER_INPUT_CHANNELS",),
    }
    dtype: Dtype | None = parameter(None, env="TENSOR_DTYPE")
    device: Device | None = parameter(None, env="CONV2D_DEVICE")
    reps: int | None = parameter(None, env="CONV_REPS", ge=1)
    mini_batch: int | None = parameter(
        None, env="CONV_MINI_BATCH", ge=1, about="Calls in one time (told, but not used, by TensorFlow 2's Conv2D)."
    )
    data_format: str | None = parameter(None, env="CONV_DATA_FORMAT", max_length=16)
    batch: int | None = parameter(None, env="BATCH", ge=1)
    input_width: int | None = parameter(None, env="TENSOR_INPUT_WIDTH", ge=1)
    input_channels: int | None = parameter(None, env="TENSOR_INPUT_CHANNELS", ge=1)
    filter_width: int | None = parameter(None, env="FILTER_INPUT_WIDTH", ge=1)
    output_channels: int | None = parameter(None, env="FILTER_OUTPUT_CHANNELS", ge=1)
    padding: int | str | None = parameter(
        None, env="FILTER_PADDING", about="A number (PyTorch) or a word (TensorFlow)."
    )
    rate: float = result(unit="GFLOP/s", better="higher", derived=True)

    @classmethod
    def parameters(cls, overrides: Mapping[str, Any] | None = None) -> dict[str, Value]:
        """Return all parameters; digits with padding, as on a command line, become the number that scripts report."""
        values = super().parameters(overrides)
        padding = values["padding"]
        if isinstance(padding, str) and padding.isascii() and padding.isdecimal() and len(padding) < 10:
            values["padding"] = int(padding)
        return values


class PiConv1D(Convolution):
    """A convolution over signals."""

    strides: int | None = parameter(None, env="FILTER_STRIDE", ge=1)


class PiConv2D(Convolution):
    """A convolution over images."""

    input_height: int | None = parameter(None, env="TENSOR_INPUT_HEIGHT", ge=1)
    filter_height: int | None = parameter(None, env="FILTER_INPUT_HEIGHT", ge=1)
    strides: int | None = parameter(None, env="FILTER_STRIDES", ge=1)


class PiImport(Legacy):
    """The import of TensorFlow, in seconds."""

    elapsed: float = result(unit="s", better="lower")


class PiHelloWorld(Legacy):
    """A constant printed by TensorFlow, in seconds for all repetitions."""

    hello_world_reps: int | None = parameter(None, env="HELLO_WORLD_REPS", alias="HELLO_WORLD_REPS", ge=1)
    elapsed: float = result(unit="s", better="lower")


MODELS: tuple[type[Indicator], ...] = (PiMatmul, PiConv1D, PiConv2D, PiImport, PiHelloWorld, PiPyBench)


def find_model(document: Mapping[str, Any]) -> tuple[type[Indicator], str | None]:
    """The class that a document of the old contract is of, and a notice where it is not the one it names.

    >>> found, notice = find_model({"name": "PiConv2D", "@parameters": {"input_width": 161, "filter_width": 5}})
    >>> found.__name__, notice
    ('PiConv1D', 'calls itself PiConv2D, but has no height: taken for PiConv1D')
    """
    name = document.get("name")
    models = {model.__name__: model for model in MODELS}
    if not isinstance(name, str) or name not in models:
        do = "its result is nested, and no table's row" if name == "PiPyPerformance" else None
        raise InputError("not an indicator of the old contract", found=str(name)[:80], allowed=models, do=do)
    parameters = document.get("@parameters")
    if (
        name == "PiConv2D"
        and isinstance(parameters, Mapping)
        and not {"input_height", "filter_height"} & set(parameters)
    ):
        return PiConv1D, "calls itself PiConv2D, but has no height: taken for PiConv1D"
    return models[name], None


def rename_document(document: dict[str, Any], indicator: type[Indicator]) -> dict[str, Any]:
    """A document of the old contract under the name of what it is: one script of those takes another's name."""
    if issubclass(indicator, MODELS) and document.get("name") in {model.__name__ for model in MODELS}:
        return amend_document(document)[0]
    return document


def amend_document(document: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """The document under the name of the class that it is of, ready for `documents.checked`; and the notice."""
    model, notice = find_model(document)
    return {**document, "name": model.__name__}, notice
