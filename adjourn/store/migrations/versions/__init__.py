"""The migrations, oldest first. One is never changed once it has been released."""
