"""The commands of `workbench sizing`, one file each."""
