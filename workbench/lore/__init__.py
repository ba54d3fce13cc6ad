"""Why is this operator slow or wrong? Dump its inputs, replay it alone, verify it bit for bit."""
