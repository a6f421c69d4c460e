"""SQL about threads: what is seen of one, its log, its retention."""
