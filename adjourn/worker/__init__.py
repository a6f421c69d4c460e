"""What we run: everything with a main. May import every other room."""
