"""The need of each animal of the zoo and the answer, in Markdown: `python -m tests.fakes.zoo_table [SEEDS]`.

The list is that of `docs/guide/sizing-measured.md`.
"""

from __future__ import annotations

import sys

from tests.fakes.zoo import Told, ask
from tests.fakes.zoo_animals import ANIMALS


def describe_told(told: Told) -> str:
    """The need and the number of an answer, or why there is none."""
    need = "none" if told.need is None else f"{told.need}"
    is_bound = "at least" in told.answer.estimates["verdict"].to_list()
    number = told.answer.recommended or ("a lower bound" if is_bound else "no number")
    failed = told.exit_code and told.answer.verification is not None
    return f"{need} → {number}{' (verification)' if failed else ''}"


def main(seeds: int) -> None:
    """Print the animals by how many of their answers have exit code 0, and how many of those numbers were wrong."""
    groups: dict[int, list[str]] = {}
    n_numbers = n_wrong = 0
    for name, animal in ANIMALS.items():
        told = [ask(animal, seed) for seed in range(seeds)]
        numbers, wrong = sum(not one.exit_code for one in told), sum(one.is_wrong for one in told)
        n_numbers, n_wrong = n_numbers + numbers, n_wrong + wrong
        groups.setdefault(numbers, []).append(f"{name}: {describe_told(told[0])}")
        print(f"{name}: {animal.about}", file=sys.stderr, flush=True)
    for numbers, told_of in sorted(groups.items(), reverse=True):
        print(f"- **Exit code 0 in {numbers} of {seeds} seeds** ({len(told_of)}): {'; '.join(told_of)}.")
    print(f"\n{n_wrong} wrong of {n_numbers} numbers with exit code 0, {len(ANIMALS)} services, seeds 0 to {seeds - 1}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
