"""Blocks made of blocks: sequences, parallel steps and routers. Definitions only; nothing here runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from adjourn.schemas.contracts.definition_checks import check_text
from adjourn.schemas.contracts.values import Contract
from adjourn.schemas.errors import DefinitionError, SelectorError
from adjourn.schemas.strict_json import JsonValue
from adjourn.tasks.blocks.block import Block, Composite, check_name, first_input, named
from adjourn.tasks.blocks.user_code import describe_briefly, discard


class Sequential(Composite):
    """Steps, one after the other, each handed what the one before came to.

    A finished step never runs again. A step that ends with a refusal or an error ends the
    sequence with it. `steps` are blocks of different names, or a mapping that names them: names
    are what a parked run finds its step by, so they may not change under it, nor their order.

    Raises `DefinitionError`.
    """

    def __init__(self, name: str, steps: Iterable[Block] | Mapping[str, Block], *, description: str = "") -> None:
        check_name("sequence", name)
        check_text(f"sequence {name!r}", "description", description)
        self.name = name
        self.description = description
        self.steps = _parts(steps, f"sequence {name!r}", "step")
        first, last = next(iter(self.steps.values())), list(self.steps.values())[-1]
        self.input = first.step_contract
        self.output = last.output

    @property
    def parts(self) -> Mapping[str, Block]:
        return self.steps


class Parallel(Composite):
    """Branches that run side by side on one input, and join: their outputs by the names of the branches.

    All branches come to their end, whatever becomes of one; then a refusal or an error of one,
    the first in their order, is what the step comes to. `input` is the type of the input, by
    default what the first branch takes that takes anything.

    Raises `DefinitionError`.
    """

    def __init__(
        self, name: str, branches: Iterable[Block] | Mapping[str, Block], *, input: Any = None, description: str = ""
    ) -> None:
        check_name("parallel step", name)
        check_text(f"parallel step {name!r}", "description", description)
        self.name = name
        self.description = description
        self.branches = _parts(branches, f"parallel step {name!r}", "branch")
        self.input = first_input(self.branches.values()) if input is None else Contract.of(input)
        self.output: Contract[Any] = Contract.of(dict[str, Any])

    @property
    def parts(self) -> Mapping[str, Block]:
        return self.branches


class Router(Composite):
    """One of several routes, chosen by a selector.

    `select` is given the input and returns a route's name or its block. It has to be pure: it may read
    its input and nothing else, for it is run again on every re-entry, and a run fails with
    `RouteUnavailableError` where it then chooses otherwise. `input` is the type of the input, by
    default what the first route takes that takes anything.

    Raises `DefinitionError`.
    """

    def __init__(
        self,
        name: str,
        routes: Iterable[Block] | Mapping[str, Block],
        select: Callable[[Any], str | Block],
        *,
        input: Any = None,
        description: str = "",
    ) -> None:
        check_name("router", name)
        check_text(f"router {name!r}", "description", description)
        if not callable(select):
            raise DefinitionError(f"router {name!r}", f"select is {select!r}, which is not a function", "give one")
        self.name = name
        self.description = description
        self.routes = _parts(routes, f"router {name!r}", "route")
        self._select = select
        self.input = first_input(self.routes.values()) if input is None else Contract.of(input)
        self.output: Contract[Any] = Contract.of(Any)

    @property
    def parts(self) -> Mapping[str, Block]:
        return self.routes

    def choose(self, value: JsonValue) -> str:
        """The name of the route for an input, as JSON that fits. Raises `SelectorError`."""
        try:
            chosen = self._select(self.input.load(value))
            name = next((name for name, route in self.routes.items() if chosen is route or chosen == name), None)
            problem = f"chose {getattr(chosen, 'name', chosen)!r}"
            if name is None:
                discard(chosen)
        except BaseException as error:  # of the user's code, as of a body
            problem = f"raised {describe_briefly(error)}"
            raise SelectorError(self.name, problem, [*self.routes]) from error
        if name is None:
            raise SelectorError(self.name, problem, [*self.routes])
        return name


def _parts(blocks: Iterable[Block] | Mapping[str, Block], where: str, what: str) -> dict[str, Block]:
    """The blocks that another is made of, by name: one at least."""
    parts = named(blocks, where, what)
    if not parts:
        raise DefinitionError(where, f"it has no {what}", "give it one at least")
    return parts
