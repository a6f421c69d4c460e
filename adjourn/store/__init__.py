"""What we remember: the only room that speaks SQL or Redis. May import `adjourn.schemas`."""
