"""A query suite run on real Sparks, one event log a session: what `workbench speedup record` writes, and its reader."""

from workbench.speedup.recording.journal import Recording, load

__all__ = ["Recording", "load"]
