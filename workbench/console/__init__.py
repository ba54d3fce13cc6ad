"""What all commands share: options from models, tables, progress, exit codes, finishing."""
