"""Observation of a running test: a sampler process that records watch events with client and server timestamps."""

from workbench.scaletest.observation.sampler_process import SamplerOptions, SamplerProcess, start_sampler

__all__ = ["SamplerOptions", "SamplerProcess", "start_sampler"]
