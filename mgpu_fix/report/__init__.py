"""What a report looks like, one module a format."""
