"""python -m tests.contracts (make freeze): freeze the contracts anew; `git diff` shows what changed.

A contract changes only in a commit that says why.
"""

from tests.contracts.contracts import CONTRACTS, FROZEN, write_json

for name, make in CONTRACTS.items():
    (FROZEN / f"{name}.json").write_text(write_json(make()) + "\n", encoding="utf-8")
