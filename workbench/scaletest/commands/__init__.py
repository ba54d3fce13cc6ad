"""Commands of the area, one file each."""
