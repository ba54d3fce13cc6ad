"""What a workload looks like: YAML read safely, objects of known kinds, and anybody's templates with placeholders."""
