"""Random trees of blocks, run through twice: undisturbed, and with deaths, duplicates and answers in any order.

    trees       grows a tree of one seed, with its models, gates, policies and answers
    simulated   runs it on the store in memory, where a process can die between any two statements
    real        runs it on PostgreSQL and Valkey, where it dies at any of its writes
    account     what a run has done, in words that are the same however it came to it

What both runs have done has to be equal. `python -m tests.blocks --help` says how to run many.
"""
