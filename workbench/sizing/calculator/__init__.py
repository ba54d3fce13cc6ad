"""The calculator of the NeMo Agent Toolkit, to the figure: its file, its formulas, its runs."""
