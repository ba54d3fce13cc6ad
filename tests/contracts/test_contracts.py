"""What users rely on is as it was frozen; `python -m tests.contracts NAME` freezes it anew, on purpose."""

from __future__ import annotations

import re

import pytest

from tests.contracts import notebook_runs
from tests.contracts.contracts import CONTRACTS, FROZEN, Contract, find_differences

MOST_SHOWN = 6000


# The others are of pyspark's and py4j's own making.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "contract",
    [pytest.param(one, id=one.name, marks=getattr(pytest.mark, one.tier) if one.tier else ()) for one in CONTRACTS],
)
def test_the_contract_holds(contract: Contract) -> None:
    changed = find_differences(contract.make())
    shown = "\n".join(changed.values())[:MOST_SHOWN]
    assert not changed, f"{len(changed)} files differ (python -m tests.contracts {contract.name}):\n{shown}"


# Here, and not in test_kept.py, so that one process runs the notebooks once for all.
@pytest.mark.notebook
@pytest.mark.timeout(900)
def test_kept_notebooks_run_and_write_the_tables_that_todays_write() -> None:
    today, kept = notebook_runs.run_notebooks()
    assert {area for area, _ in notebook_runs.find_runs(kept)} == {
        name.partition("_")[2] for name in notebook_runs.NOTEBOOKS
    }
    assert notebook_runs.describe_runs(kept) == notebook_runs.describe_runs(today)


def test_what_is_frozen_names_no_machine() -> None:
    found = {
        f"{path.name}: {text}"
        for path in FROZEN.rglob("*")
        if path.is_file()
        for text in re.findall(r"(?<![\w.])/(?:home|root|tmp|work|mnt)/\S*", path.read_text(encoding="utf-8"))
    }
    assert found == set()
