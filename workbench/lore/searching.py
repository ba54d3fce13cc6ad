"""Inputs of an operator made smaller as long as a question about them is still answered with yes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from workbench.lore.minimizing import Rows, ddmin
from workbench.lore.questions import Frames
from workbench.lore.subsets import Subset

Told = Callable[[int, int], None]


class _Stopped(Exception):  # noqa: N818 - the cap, no fault
    """No step is left."""


class Search:
    """Inputs shrunk in turn: partitions, then batches, then rows, until no input can lose any more.

    Parameters
    ----------
    subsets
        The inputs.
    holds
        The question; true of the whole.
    max_steps
        How often it may be asked.
    told
        Called with (rows left out, rows that there were).

    Attributes
    ----------
    steps
        How often it was asked.
    stopped
        Did the cap end it?
    """

    def __init__(
        self, subsets: Sequence[Subset], holds: Callable[[Frames], bool], max_steps: int, told: Told | None = None
    ) -> None:
        self.subsets, self.max_steps, self.told = subsets, max_steps, told
        self.steps, self.stopped = 0, False
        self._holds = holds
        self._asked: dict[tuple[int, Rows], bool] = {}

    def frames(self, index: int | None = None, rows: Rows | None = None) -> Frames:
        """What is left, of one input these rows."""
        return {
            place: subset.frame(rows if place == index and rows is not None else subset.rows)
            for place, subset in enumerate(self.subsets)
        }

    def run(self) -> None:
        """Shrink."""
        try:
            for pieces in ("partitions", "batches"):
                for index, subset in enumerate(self.subsets):
                    self._by(index, getattr(subset, pieces))
            settled, index = 0, 0
            # An input that was just shrunk is settled as long as no other changes.
            while settled < len(self.subsets):
                settled = 1 if self._by_rows(index) else settled + 1
                index = (index + 1) % len(self.subsets)
        except _Stopped:
            self.stopped = True

    def _by(self, index: int, pieces: Sequence[Rows]) -> None:
        whole = self.subsets[index].rows
        left = [part for piece in pieces for run in piece.runs if len(part := whole.within(*run))]
        if len(left) < 2:
            return

        def joined(parts: Sequence[Rows]) -> Rows:
            return Rows.of(run for part in parts for run in part.runs)

        def accepted(parts: list[Rows]) -> list[Rows]:
            self._keep(index, joined(parts), shrink=False)
            return parts

        ddmin(left, lambda parts: self._ask(index, joined(parts)), accepted)

    def _by_rows(self, index: int) -> bool:
        before = len(self.subsets[index].rows)
        after = ddmin(
            self.subsets[index].rows,
            lambda rows: self._ask(index, rows),
            lambda rows: self._keep(index, rows, shrink=True),
        )
        return len(after) < before

    def _ask(self, index: int, rows: Rows) -> bool:
        if (index, rows) not in self._asked:
            if self.steps >= self.max_steps:
                raise _Stopped
            self.steps += 1
            self._asked[index, rows] = self._holds(self.frames(index, rows))
        return self._asked[index, rows]

    def _keep(self, index: int, rows: Rows, *, shrink: bool) -> Rows:
        kept = self.subsets[index].keep(rows, shrink=shrink)
        # Answers about this input hold until its rows are numbered anew, those about others do not.
        stays = {key: value for key, value in self._asked.items() if key[0] == index and kept == rows}
        self._asked = stays
        if self.told:
            total = sum(subset.n_rows_dumped for subset in self.subsets)
            self.told(total - sum(len(subset.rows) for subset in self.subsets), total)
        return kept
