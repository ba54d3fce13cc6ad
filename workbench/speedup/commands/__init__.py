"""The commands of the area, one file each; libraries are imported only when a command runs."""
