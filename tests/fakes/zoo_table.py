"""What was said of each animal of the zoo and what is true, in Markdown: `python -m tests.fakes.zoo_table [SEEDS]`."""

from __future__ import annotations

import sys

from tests.fakes.zoo import Told, ask
from tests.fakes.zoo_animals import ANIMALS


def describe_told(told: Told) -> str:
    """A number with exit code 0, or why there is none."""
    if not told.exit_code:
        return f"{told.answer.recommended}"
    number = "" if told.answer.recommended is None else f"{told.answer.recommended}, "
    bound = "at least, " if "at least" in told.answer.estimates["verdict"].to_list() else ""
    failed = told.answer.verification is not None
    return f"{number}{bound}exit code 1{': verification did not hold' if failed else ''}"


def main(seeds: int) -> None:
    """Print a row for each animal, and how many numbers with exit code 0 were wrong."""
    print("| service | true need | said, seed 0 | numbers with exit code 0 | wrong |")
    print("|---|---|---|---|---|")
    n_numbers = n_wrong = 0
    for name, animal in ANIMALS.items():
        told = [ask(animal, seed) for seed in range(seeds)]
        numbers, wrong = sum(not one.exit_code for one in told), sum(one.is_wrong for one in told)
        n_numbers, n_wrong = n_numbers + numbers, n_wrong + wrong
        need = "no number" if told[0].need is None else str(told[0].need)
        print(
            f"| {name}: {animal.about} | {need} | {describe_told(told[0])} | {numbers} of {seeds} | {wrong} |",
            flush=True,
        )
    print(f"\n{n_wrong} wrong of {n_numbers} numbers with exit code 0, {len(ANIMALS)} services, seeds 0 to {seeds - 1}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
