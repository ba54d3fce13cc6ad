"""`python -m workbench` is `workbench`."""

from workbench.cli.app import main

main()
