"""What users rely on is as it was frozen; `make freeze` freezes it anew, on purpose."""

from __future__ import annotations

import difflib

import pytest

from tests.contracts.contracts import CONTRACTS, FROZEN, write_json

MOST_SHOWN = 6000


# Importing every module shows what libraries warn about.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("name", CONTRACTS)
def test_what_users_rely_on_is_as_it_was_frozen(name: str) -> None:
    before = (FROZEN / f"{name}.json").read_text(encoding="utf-8").splitlines()
    now = write_json(CONTRACTS[name]()).splitlines()
    changed = "\n".join(difflib.unified_diff(before, now, "frozen", "now", lineterm="", n=1))
    assert not changed, changed[:MOST_SHOWN]
