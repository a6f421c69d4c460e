"""Options that a definition does not take are refused at the definition, in words, and not dropped."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from adjourn import Agent, DefinitionError, ScriptedModel, SubAgent, client_tool, say, tool


class Wanted(BaseModel):
    prompt: str


@pytest.mark.parametrize("option", ["own_process", "retries", "cacheable", "repeatable", "wait_points", "own_proces"])
def test_a_client_tool_takes_no_option_of_a_body(option: str) -> None:
    given: Any = {option: True}
    with pytest.raises(DefinitionError, match=f"client tool 'pick': it has no option '{option}'.*no body"):
        client_tool("pick", description="Pick.", input=Wanted, output=str, **given)


def test_a_sub_agent_takes_no_option_of_a_tool() -> None:
    given: Any = {"own_process": True}
    agent = Agent("helper", ScriptedModel([say("done")]))
    with pytest.raises(DefinitionError, match=r"sub-agent 'helper': it has no option 'own_process'.*its agent"):
        SubAgent(agent, **given)


def test_an_unknown_option_of_a_tool_is_named_with_those_that_there_are() -> None:
    define: Any = tool
    with pytest.raises(DefinitionError, match=r"no option 'own_proces'.*own_process"):
        define(own_proces=True)
    with pytest.raises(DefinitionError, match="no option 'function'"):
        define(function=print)


@pytest.mark.parametrize("given", ["yes", 1, None])
def test_own_process_is_true_or_false(given: Any) -> None:
    def work() -> str:
        return ""

    with pytest.raises(DefinitionError, match=f"own_process is {given!r}"):
        tool(own_process=given)(work)
