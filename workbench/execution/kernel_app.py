"""`python -m workbench.execution.kernel_app`: ipykernel whose outputs are never dropped, however fast a cell writes.

A socket holds a thousand messages by default and drops the others, the one that ends a cell, too.
"""

from __future__ import annotations

import sys
from typing import Any

import zmq
from ipykernel.kernelapp import IPKernelApp


class UnboundedApp(IPKernelApp):
    """The kernel, with no limit to the outputs that wait to be sent."""

    def init_iopub(self, context: Any) -> None:
        """Create the socket of the outputs."""
        context.setsockopt(zmq.SNDHWM, 0)
        super().init_iopub(context)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    # As ipykernel's own launcher: modules in the working directory do not hide those of the kernel.
    if sys.path[0] == "":
        del sys.path[0]
    UnboundedApp.launch_instance()
