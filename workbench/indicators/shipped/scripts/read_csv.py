"""Read a CSV file: whole numbers, fractions and words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workbench.indicators.shipped.scripts._measure import Run


def measure(run: Run) -> None:
    import _reading

    rows = run.whole("rows", 20_000, 1)

    def write(path: str, columns: dict[str, list[Any]]) -> None:
        lines = zip(columns["id"], columns["value"], columns["word"])  # noqa: B905
        with open(path, "w", encoding="utf-8", newline="") as file:
            file.write("id,value,word\n")
            file.writelines(f"{number},{value},{word}\n" for number, value, word in lines)

    _reading.measure(run, rows, "table.csv", write, lambda frames, path: frames.read_csv(path))


if __name__ == "__main__":
    import _measure

    _measure.main("ReadCsv", measure)
