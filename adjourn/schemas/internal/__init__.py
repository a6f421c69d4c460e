"""Records and numbers that never leave Adjourn's own code."""
