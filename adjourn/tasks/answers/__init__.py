"""Takes answers in: parse, authorise, validate, accept, publish."""
