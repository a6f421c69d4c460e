"""What we do: tools, engine, turns, answers and the sweep. May import `adjourn.schemas` and `adjourn.store`."""
