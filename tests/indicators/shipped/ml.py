"""TensorFlow and JAX in environments of their own in the user's cache."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.fakes.cached_environment import install_environment

REQUIREMENTS = {"jax": "jax==0.10.2", "tensorflow": "tensorflow-cpu==2.21.0"}


def python_with(framework: str) -> Path:
    """The interpreter of an environment that has the framework; made whole or not at all.

    Raises
    ------
    RuntimeError
        It cannot be installed; the message says why.
    """
    requirement = REQUIREMENTS[framework]
    name = f"ml/{requirement}/{sys.version_info.major}.{sys.version_info.minor}"
    return install_environment(name, [requirement], flags=["--only-binary", ":all:", "--compile-bytecode"])
