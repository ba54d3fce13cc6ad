"""The ready-made charts, one file each; `workbench.charts` gathers them."""
