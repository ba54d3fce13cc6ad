"""Inline hooks in the JVM: Java sources, their jar, and the capture of a run."""
