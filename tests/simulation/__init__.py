"""The deciding core, unchanged, in a world that one seed decides: no threads, no servers, no clock but ours.

    stage       puts the world in the place of store, threads, randomness and clocks
    memory      the store, and `test_conformance` that holds it against PostgreSQL
    scheduler   processes and tasks that are run one at a time, stand still and die
    world       what happens next, what goes wrong, and the way to the end
    bus         messages that are lost, repeated, late and in no order; a Redis that forgets
    people      who starts runs, answers and cancels
    tools       what the agents can do, and what their model asks for
    profile     how much of what goes wrong in a seed
    witness     what may never happen
    mutations   rules taken away, to see that the witness misses them

`python -m tests.simulation --help` says how to run it.
"""
