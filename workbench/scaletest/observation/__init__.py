"""Observation of a running test: a sampler process that writes down what the cluster reports, by both clocks."""

from workbench.scaletest.observation.sampler_process import SamplerProcess, start_sampler

__all__ = ["SamplerProcess", "start_sampler"]
