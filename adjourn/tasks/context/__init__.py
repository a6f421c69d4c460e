"""What a tool body is given: `ctx`."""
