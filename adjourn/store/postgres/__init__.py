"""PostgreSQL: the connection, and how rows become records. The only truth."""
