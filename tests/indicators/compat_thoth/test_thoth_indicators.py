"""The old contract: its documents validate, its scripts run as they are, its mistakes are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import pytest

from workbench.core.errors import InputError
from workbench.indicators.compat_thoth import thoth_indicators
from workbench.indicators.contract.documents import Document, DocumentError, parse_document, validate_document
from workbench.indicators.contract.indicator import Case, field_metadata
from workbench.indicators.contract.new_indicator import try_indicator

GOLDEN = {"hello": "HelloWorld", "import": "Import", "conv1d": "Conv1D", "conv2d": "Conv2D", "matmul": "Matmul"}
MATMUL: dict[str, Any] = {
    "name": "PiMatmul",
    "component": "tensorflow",
    "@parameters": {"dtype": "float32", "device": "cpu", "reps": 50, "matrix_size": 512},
    "@result": {"rate": 134.5, "elapsed": 40.8},
}


def read(document: dict[str, Any]) -> Document:
    amended, _ = thoth_indicators.amend_document(document)
    return validate_document(amended, thoth_indicators.find_model(document)[0])


@pytest.mark.parametrize(
    "name", [*(f"tf_{name}" for name in GOLDEN), *(f"torch_{name}" for name in ("conv1d", "conv2d", "matmul"))]
)
def test_the_documents_of_todays_scripts_validate(shared: Path, name: str) -> None:
    document = parse_document((shared / "golden" / "indicators" / f"{name}.stdout").read_bytes())
    found = read(document)
    assert found.indicator.__name__ == f"Pi{GOLDEN[name.partition('_')[2]]}"
    assert found.component == document["component"]
    assert dict(found.results) == {key: pytest.approx(value) for key, value in document["@result"].items()}
    told = {key.lower(): value for key, value in document["@parameters"].items()}
    assert {key: value for key, value in found.parameters.items() if value is not None} == told


def test_the_convolution_over_signals_that_calls_itself_one_over_images_is_found_out() -> None:
    signals = {"name": "PiConv2D", "@parameters": {"input_width": 161, "filter_width": 5}}
    assert thoth_indicators.find_model(signals) == (
        thoth_indicators.PiConv1D,
        "calls itself PiConv2D, but has no height: taken for PiConv1D",
    )
    assert thoth_indicators.amend_document(signals)[0]["name"] == "PiConv1D"
    # What was given is not changed.
    assert signals["name"] == "PiConv2D"
    images = {"name": "PiConv2D", "@parameters": {"input_width": 161, "input_height": 700}}
    assert thoth_indicators.find_model(images) == (thoth_indicators.PiConv2D, None)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "None"),
        ({"name": "PiNone"}, "PiNone"),
        ({"name": "PiPyPerformance"}, "nested"),
        ({"name": "x" * 10_000}, "xxx"),
    ],
)
def test_a_document_of_something_else_is_refused(document: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match="not an indicator of the old contract") as caught:
        thoth_indicators.find_model(document)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("padding", [1, "SAME", "VALID", 0])
def test_padding_is_a_number_or_a_word_and_stays_what_it_is(padding: int | str) -> None:
    document = {
        "name": "PiConv1D",
        "@parameters": {"padding": padding, "input_width": 161},
        "@result": {"rate": 1.0, "elapsed": 2.0},
    }
    found = read(document).parameters["padding"]
    assert found == padding
    assert type(found) is type(padding)


@pytest.mark.parametrize(
    ("text", "padding"), [("1", 1), ("0", 0), (1, 1), ("SAME", "SAME"), ("1x", "1x"), ("9" * 5000, "9" * 5000)]
)
def test_a_padding_of_a_command_line_is_the_one_that_documents_tell(text: int | str, padding: int | str) -> None:
    asked = Case.from_parameters(thoth_indicators.PiConv2D, {"padding": text}).parameters
    assert asked["padding"] == padding
    document = {"name": "PiConv2D", "@parameters": {"padding": padding}, "@result": {"rate": 1.0, "elapsed": 2.0}}
    assert validate_document(document, thoth_indicators.PiConv2D, asked).parameters["padding"] == padding


@pytest.mark.parametrize("missing", ["rate", "elapsed"])
def test_a_result_cannot_be_missing_nor_stand_in_for_what_is_measured(missing: str) -> None:
    results = {key: value for key, value in MATMUL["@result"].items() if key != missing}
    with pytest.raises(DocumentError, match=missing):
        read({**MATMUL, "@result": results})
    with pytest.raises(DocumentError, match="every run has a column of this name"):
        read({**MATMUL, "@result": {**MATMUL["@result"], "ru_utime": -1}})


def test_times_have_the_unit_that_the_scripts_use_and_only_they_are_compared() -> None:
    units = {
        model.__name__: field_metadata(model.model_fields["elapsed"])["unit"] for model in thoth_indicators.MODELS[:5]
    }
    compared = {model.__name__: [metric.field for metric in model.metrics()] for model in thoth_indicators.MODELS}
    assert compared.pop("PiPyBench") == ["totals_average"]
    assert set(map(tuple, compared.values())) == {("elapsed",)}, "and no rates, which follow from them"
    assert units == {"PiMatmul": "ms", "PiConv1D": "ms", "PiConv2D": "ms", "PiImport": "s", "PiHelloWorld": "s"}


def test_parameters_reach_every_script_of_the_name() -> None:
    given = thoth_indicators.PiConv1D.parameters({"dtype": "float64", "strides": 3, "padding": "SAME"})
    assert thoth_indicators.PiConv1D.environment(given) == {
        "TENSOR_DTYPE": "float64",
        "MATMUL_DTYPE": "float64",
        "FILTER_STRIDE": "3",
        "FILTER_PADDING": "SAME",
    }
    # What is not given is left to the script: it has a default of its own.
    assert thoth_indicators.PiMatmul.environment(thoth_indicators.PiMatmul.parameters()) == {}
    assert thoth_indicators.PiHelloWorld.environment({"hello_world_reps": 5}) == {"HELLO_WORLD_REPS": "5"}
    assert thoth_indicators.PiConv2D.environment(thoth_indicators.PiConv2D.parameters({"strides": 3})) == {
        "FILTER_STRIDES": "3"
    }


def test_pybench_has_its_fifty_three_averages() -> None:
    results = thoth_indicators.PiPyBench.fields_of("result")
    assert len(results) == 53
    assert all(name.endswith("_average") for name in results)
    document = {
        "component": "pybench",
        "name": "PiPyBench",
        "@parameters": {"rounds": 10},
        "@result": dict.fromkeys(results, 0.5),
    }
    assert read(document).results["totals_average"] == 0.5
    with pytest.raises(DocumentError, match="totals_average"):
        read({**document, "@result": {key: 0.5 for key in results if key != "totals_average"}})


OLD_SCRIPT = """
import json, os, sys
size = int(os.getenv("MATMUL_MATRIX_SIZE", "512"))
print("MATMUL_MATRIX_SIZE set to", size, file=sys.stderr)
json.dump({"name": "PiMatmul", "component": "numpy", "numpy_buildinfo": {"blas": "some"},
           "@parameters": {"dtype": "float32", "device": "cpu", "reps": 5, "matrix_size": size},
           "@result": {"rate": 4.5, "elapsed": 0.25}}, sys.stdout)
"""


@pytest.mark.parametrize("given", [{}, {"matrix_size": 8, "reps": 5, "dtype": "float32"}])
def test_a_script_of_the_old_contract_runs_as_it_is(given: dict[str, Any]) -> None:
    class PiMatmul(thoth_indicators.PiMatmul):
        """The old indicator, with a script."""

        script: ClassVar[Path | str] = OLD_SCRIPT

    found = try_indicator(PiMatmul, given)
    assert (found.component, found.build_info) == ("numpy", {"numpy_buildinfo": {"blas": "some"}})
    told = {"dtype": "float32", "device": "cpu", "reps": 5, "matrix_size": 512, "mini_batch": None}
    assert found.parameters == told | given
    assert found.results == {"rate": 4.5, "elapsed": 0.25}
