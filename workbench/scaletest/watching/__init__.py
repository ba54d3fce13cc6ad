"""Watching a running test: a process of its own that writes down what the cluster says, with both clocks."""

from workbench.scaletest.watching.process import Sampler, start

__all__ = ["Sampler", "start"]
