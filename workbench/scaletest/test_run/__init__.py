"""One whole test: checks, sampler, submission, drain, cleanup and verdict."""

from workbench.scaletest.test_run.run_lifecycle import RunContext, resume_test, run_test
from workbench.scaletest.test_run.run_options import (
    ClusterAccess,
    RunOptions,
    RunResult,
    build_options,
    find_cluster_access,
)

__all__ = [
    "ClusterAccess",
    "RunContext",
    "RunOptions",
    "RunResult",
    "build_options",
    "find_cluster_access",
    "resume_test",
    "run_test",
]
