"""What an application would have taken otherwise: its graph of tasks, replayed in virtual time."""
