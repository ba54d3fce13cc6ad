"""Nothing of the recording machine stays in a kept log: the workbench's own scrubbing, under the names used here.

`findings` reads the result with other eyes (patterns, decoded fields); `record.py` keeps no log that it objects to.
"""

from __future__ import annotations

from workbench.speedup.recording.scrub import findings, scrub

__all__ = ["findings", "scrub"]
