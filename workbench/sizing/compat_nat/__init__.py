"""Reproduces the sizing calculator of NVIDIA NeMo Agent Toolkit 1.9.0 exactly."""
