"""Trust in dumps: signatures, allowed classes and settings, safe unpacking."""
