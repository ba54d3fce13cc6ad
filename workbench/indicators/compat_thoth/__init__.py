"""Formats of Thoth that are reproduced exactly: Amun's documents and specifications, its indicators."""
