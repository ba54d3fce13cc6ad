"""simulated-runai as a process of its own: `process.running` starts it."""

from __future__ import annotations

import sys

from workbench.scaletest.simulated_runai.process import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
