"""Settings, and which deployment they belong to."""
