"""From a session's effects to a recommended stack: constraints, a mix of metrics, chances, the evidence for each."""
