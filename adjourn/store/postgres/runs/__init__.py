"""SQL about runs: start, claim, write, end, retry, fork."""
