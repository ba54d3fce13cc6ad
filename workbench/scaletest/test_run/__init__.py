"""One whole test: checks, sampler, submission, drain, cleanup and verdict."""
