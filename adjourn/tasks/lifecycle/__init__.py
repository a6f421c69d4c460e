"""What happens to runs besides being driven: the sweep, retries, retention."""
