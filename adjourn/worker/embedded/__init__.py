"""PostgreSQL and Valkey from wheels, for development, the demo and the tests."""
