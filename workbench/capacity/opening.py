"""A run folder of another area opened: is it what the plan needs, and may it be believed?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from workbench import runs
from workbench.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from workbench.tables import Table

# What makes a run of each area that a plan can use.
MAKES = {
    "speedup": "workbench run speedup -p mode=fleet -p logs=LOGS",
    "sizing": "workbench run sizing",
    "indicators": "workbench run indicators",
    "scaletest": "workbench run scaletest -p runs=RUN",
}


@dataclass(frozen=True)
class Opened:
    """A run that is planned with.

    Attributes
    ----------
    run
        Its folder and record.
    objection
        Why it should not be believed; empty when it is valid.
    """

    run: runs.Run
    objection: str

    @property
    def verdict(self) -> str:
        """valid, invalid, or what became of a run that has no verdict."""
        return self.run.verdict or (self.run.status if self.run.status != "succeeded" else "no verdict")

    def read(self, table: Table, *, more: tuple[str, ...] = ()) -> pl.DataFrame:
        """A table of the run, checked for the columns that the plan needs, with those of `more` that are there.

        Raises
        ------
        InputError
            The table or a column is not there, or of another kind; names run, table, columns and what to do.
        """
        import polars as pl

        try:
            found = table.read(self.run.tables_folder)
        except InputError as error:
            place = f"run {self.run.run_id} ({self.run.area}), table {table.name}"
            raise InputError(
                error.what,
                where=f"{place}: {error.facts['where']}",
                found=error.facts["found"],
                allowed=error.facts["allowed"],
                do=f"{MAKES[self.run.area]}, and name its folder",
            ) from error
        everything = pl.read_parquet(table.path(self.run.tables_folder), glob=False)
        return found.with_columns(everything[name] for name in more if name in everything.columns)


def open_run(folder: str, area: str, *, accept_invalid: bool) -> Opened:
    """A finished, valid run of an area.

    Parameters
    ----------
    folder
        The run folder.
    area
        The area that it must be of.
    accept_invalid
        Take runs that are invalid, failed, or not finished, too; the objection then says what is wrong.

    Raises
    ------
    InputError
        It is no run folder, of another area, of a newer format, or not to be believed.
    """
    run = runs.load(Path(folder))
    if run.area != area:
        raise InputError(
            "a run of another area",
            where=folder,
            found=run.area,
            allowed=area,
            do=f"{MAKES[area]}, and name its folder",
        )
    objection = _objection(run)
    if objection and not accept_invalid:
        raise InputError(
            "a plan must not rest on this run",
            where=f"run {run.run_id} ({area}), {folder}",
            found=objection,
            allowed="a run that ended and is valid",
            do="run it again; or set accept_invalid (--accept-invalid): the plan is then invalid, too",
        )
    return Opened(run, objection)


def _objection(run: runs.Run) -> str:
    if run.status != "succeeded":
        return {"running": "it is not finished"}.get(run.status, f"it {run.status}")
    if run.verdict is None:
        return "it has no verdict"
    if run.verdict != "valid":
        told = "; ".join(str(reason) for reason in run.record["reasons"])
        return f"it is invalid: {told[:300]}" if told else "it is invalid"
    return ""
