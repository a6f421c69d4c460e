"""`adjourn dev` and `adjourn demo`."""
