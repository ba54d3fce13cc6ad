"""Scrubbing of sample logs: the workbench's own functions.

`list_machine_traces` checks the result independently (patterns, decoded fields); `record.py` keeps no log with traces.
"""

from __future__ import annotations

from workbench.speedup.recording.session_log import list_machine_traces, scrub_line

__all__ = ["list_machine_traces", "scrub_line"]
