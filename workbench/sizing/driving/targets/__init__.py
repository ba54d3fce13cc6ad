"""What is driven: one module a protocol, each of which sends one request and says what came of it."""
