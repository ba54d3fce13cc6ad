"""The report of a run: headline, tables, page, gallery."""

from __future__ import annotations

from workbench.report.display import bullets, headline, table
from workbench.report.gallery import write_gallery
from workbench.report.page import write_report
from workbench.report.study import Study, conclude, show_answer

__all__ = [
    "Study",
    "bullets",
    "conclude",
    "headline",
    "show_answer",
    "table",
    "write_gallery",
    "write_report",
]
