"""Recordings: query suites run on real Spark engines, with one event log per session."""

from workbench.speedup.recording.recording_plan import Recording, load_recording

__all__ = ["Recording", "load_recording"]
