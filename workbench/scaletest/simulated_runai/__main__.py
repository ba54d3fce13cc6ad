"""simulated-runai as a process of its own: `python -m workbench.scaletest.simulated_runai SETTINGS`."""

from __future__ import annotations

import sys

from workbench.scaletest.simulated_runai.stand_in_process import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
