"""What we say: Pydantic models of everything that is stored or sent. No I/O; imports nothing of ours."""
