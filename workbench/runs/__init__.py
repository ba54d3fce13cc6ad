"""Run folders: start one, open, read and check them, compare them, delete them."""

from __future__ import annotations

from workbench.runs.catalogue import open_result as open  # noqa: A004
from workbench.runs.rule_check import check_rules as check
from workbench.runs.run_folder import Run, attach_run, current_run, list_run_folders, load_run, start_run

__all__ = ["Run", "attach_run", "check", "current_run", "list_run_folders", "load_run", "open", "start_run"]
