"""The operators of a tagged plan to pick from, live: a press dumps one, replays it in a fresh process, draws anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from workbench.display import Shown, headline, table
from workbench.errors import WorkbenchError
from workbench.formats import escape, number
from workbench.lore.charts import chart_partitions, chart_ratios, chart_times
from workbench.lore.key_numbers import answer, own_settings
from workbench.lore.picking import TREE

if TYPE_CHECKING:
    from workbench.lore.outcome import Outcome
    from workbench.lore.study import Study

MOST_OPERATORS = 150
LABEL_CHARS = 60
INDENT_PX, MOST_INDENT_PX = 14, 280
REASON_CHARS = 90
# Answer, times, ratios, partitions.
PLACES = 4
NOTHING = Shown("", "")


def operators(plan: pl.DataFrame) -> Shown:
    """The operators of table `picking.TREE` as a table, those that cannot be dumped with their reason."""
    shown = plan.select("lore_id", "operator", "rows_in", "n_rows", "time_ms", "span_ms", "refused")
    return table(shown, TREE, caption="Operators; ids picks another one", limit=MOST_OPERATORS)


class Controls:
    """The plan as buttons, a field for the partition, and what the last press found, bound to one study.

    Nothing here needs a front end: without one the buttons are objects that nobody presses.
    """

    def __init__(self, study: Study) -> None:
        import ipywidgets

        self.study = study
        self.plan = study.plan if study.plan is not None else TREE.frame([])
        self.picked = study.result.lore_id
        self.result: Outcome = study.result
        self.buttons: dict[int, Any] = {}
        self.lines = [self._line(row) for row in self.plan.head(MOST_OPERATORS).rows(named=True)]
        self.partition = ipywidgets.Text(
            placeholder="all of them",
            description="Partition",
            style={"description_width": "initial"},
            layout=ipywidgets.Layout(width="200px"),
        )
        self.go = ipywidgets.Button(
            description="Dump and replay", button_style="primary", layout=ipywidgets.Layout(width="auto")
        )
        self.sentence = ipywidgets.HTML()
        self.go.on_click(lambda _: self.replay())
        self._shown: list[Any] = []
        self.pick(self.picked)

    def pick(self, lore_id: int) -> None:
        """Mark an operator as the one that the next press dumps."""
        self.picked = lore_id
        for number_, button in self.buttons.items():
            button.button_style = "info" if number_ == lore_id else ""
        self._say(f"loreId {lore_id} is picked.")

    def replay(self) -> None:
        """Dump the picked operator, replay it, draw what was found; an error is said and changes nothing."""
        self.go.disabled = True
        try:
            self.result = self.study.other(self.picked, self._partition(), self._say)
        except (WorkbenchError, ValueError) as error:
            self._say(str(error))
        else:
            self._say("")
            self._draw()
        finally:
            self.go.disabled = False

    def box(self) -> Any:
        """All controls below each other."""
        import ipywidgets

        left_out = self.plan.height - len(self.lines)
        more = [ipywidgets.HTML(f"<p>{left_out} more operators; give ids</p>")] if left_out > 0 else []
        tree = ipywidgets.VBox(self.lines + more, layout=ipywidgets.Layout(overflow="auto", max_height="520px"))
        bar = ipywidgets.Box([self.partition, self.go], layout=ipywidgets.Layout(flex_flow="row wrap"))
        return ipywidgets.VBox([tree, bar, self.sentence])

    def _ipython_display_(self) -> None:
        """Show the controls, and below them what the last press found."""
        from IPython.display import display

        display(self.box())  # type: ignore[no-untyped-call]
        # Places for what the first press will find.
        self._shown = [display(NOTHING, display_id=True) for _ in range(PLACES)]  # type: ignore[no-untyped-call]

    def _draw(self) -> None:
        for handle, view in zip(self._shown, self._views(), strict=False):
            handle.update(view)

    def _views(self) -> list[Any]:
        """Answer, times, ratios, partitions; a place that has nothing to show stays empty."""
        found = self.result
        invalid = bool(found.reasons)
        said = headline(answer=answer(found), verdict="invalid" if invalid else "valid", reasons=found.reasons)
        return [
            # The report lifts a headline to its top; this one is of another operator.
            Shown(said.html, said.text),
            chart_times(found.timings, found.times) if found.timings.height else NOTHING,
            ratios_of(found) or NOTHING,
            chart_partitions(found.partitions),
        ]

    def _partition(self) -> int | None:
        text = self.partition.value.strip()
        if text and not (text.isascii() and text.isdigit()):
            raise ValueError("A partition is a whole number; empty means all of them.")
        return int(text) if text else None

    def _line(self, row: dict[str, Any]) -> Any:
        import ipywidgets

        lore_id, reason = row["lore_id"], row["refused"]
        label = f"{'reused' if lore_id is None else lore_id} · {row['operator']}"
        button = ipywidgets.Button(
            description=label[:LABEL_CHARS],
            tooltip=(reason or row["text"])[:300],
            disabled=reason is not None,
            layout=ipywidgets.Layout(
                width="auto", margin=f"1px 0 1px {min(INDENT_PX * row['depth'], MOST_INDENT_PX)}px"
            ),
        )
        if reason is None and lore_id is not None:
            self.buttons[lore_id] = button
            button.on_click(lambda _: self.pick(lore_id))
        told = [f"{number(row['n_rows'])} rows"] if row["n_rows"] is not None else []
        told += [reason[:REASON_CHARS]] if reason else []
        words = ipywidgets.HTML(f'<span style="opacity:.75">{escape(" · ".join(told))}</span>')
        return ipywidgets.HBox([button, words], layout=ipywidgets.Layout(flex="0 0 auto", align_items="center"))

    def _say(self, text: str) -> None:
        self.sentence.value = f"<p>{escape(text)}</p>" if text else ""


def ratios_of(found: Outcome) -> Any:
    """The A/B chart of a replay; null where nothing was compared or timed."""
    if not found.ratios.height:
        return None
    settings_a, settings_b = own_settings(found)
    return chart_ratios(found.ratios, settings_a=settings_a, settings_b=settings_b)
