"""The commands of `workbench indicators`, one file each."""
