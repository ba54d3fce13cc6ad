"""Quantities as Kubernetes writes them."""

from __future__ import annotations

import pytest

from workbench.scaletest.scenario.workload_entries import parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [("64", 64), ("512Gi", 512 * 2**30), ("500m", 0.5), ("100k", 1e5), ("1.5", 1.5), ("2e3", 2000), ("250n", 2.5e-7)],
)
def test_quantities_are_numbers_in_their_base_unit(text: str, value: float) -> None:
    assert parse_quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "lots", "1GB", "1 Gi", "--1", "1e999", "nan", "0x10", True, None])
def test_what_is_no_quantity_is_refused(text: object) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_quantity(text)
