"""Which statement of the three documents is held by which test."""
