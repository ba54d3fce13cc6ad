"""Spark shared by areas: the JVM, engines and their jars."""
