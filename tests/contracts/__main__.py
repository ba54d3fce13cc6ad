"""python -m tests.contracts [NAME...]: freeze these contracts anew, all without a name, and print what changed.

A contract changes only in a commit that says why. Files that nothing makes any more are named, not deleted.
"""

from __future__ import annotations

import sys

from tests.contracts.contracts import CONTRACTS, FROZEN, find_differences, write

if __name__ == "__main__":
    wanted = sys.argv[1:] or [one.name for one in CONTRACTS]
    if unknown := set(wanted) - {one.name for one in CONTRACTS}:
        sys.exit(
            f"no such contract: {', '.join(sorted(unknown))}; there are {', '.join(one.name for one in CONTRACTS)}"
        )
    kept: set[str] = set()
    for contract in [one for one in CONTRACTS if one.name in wanted]:
        made = contract.make()
        changed = find_differences(made)
        write(made)
        kept |= set(made)
        print(f"{contract.name}: {len(made)} files, {len(changed)} changed")
        for text in changed.values():
            print(text)
    if len(wanted) == len(CONTRACTS):
        left = {path.relative_to(FROZEN).as_posix() for path in FROZEN.rglob("*") if path.is_file()} - kept
        print(*(f"made by no contract: {name}" for name in sorted(left)), sep="\n")
