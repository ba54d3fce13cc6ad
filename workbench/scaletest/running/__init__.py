"""A whole test: what is checked before, the sampler beside, submission, draining, the end."""

from workbench.scaletest.running.options import Options, options
from workbench.scaletest.running.place import Place, place
from workbench.scaletest.running.result import RunResult
from workbench.scaletest.running.starting import resume, run

__all__ = ["Options", "Place", "RunResult", "options", "place", "resume", "run"]
