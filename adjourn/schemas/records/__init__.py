"""The records that are stored, sent and shown: items, runs, threads, actions, answers, events."""
