"""LangGraph with its PostgresSaver: `interrupt()` in a tool node, `Command(resume=...)` to go on.

As its documentation shows it, in its default durability. Runs in an environment of its own
(`requirements-langgraph.txt`), so nothing else of the benchmark may import it.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage  # type: ignore[import-not-found]
from langgraph.checkpoint.postgres import PostgresSaver  # type: ignore[import-not-found]
from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found]
from langgraph.graph.message import add_messages  # type: ignore[import-not-found]
from langgraph.types import Command, interrupt  # type: ignore[import-not-found]
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def model(state: State) -> dict[str, Any]:
    last = state["messages"][-1]
    if isinstance(last, HumanMessage):
        call = {"id": "call_1", "name": "send_report", "args": {"summary": "Q3 revenue is up 4%."}}
        return {"messages": [AIMessage("", tool_calls=[call])]}
    return {"messages": [AIMessage(f"Report sent: {last.content}")]}


def next_node(state: State) -> str:
    return "tools" if getattr(state["messages"][-1], "tool_calls", None) else END


class LangGraph:
    """One process's side of the LangGraph peer; `entered` is called with each answer on re-entry."""

    def __init__(self, database_url: str, connections: int, entered: Any) -> None:
        settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        # A saver takes two connections in some of its calls, so one would lock up.
        most = max(connections, 2)
        pool: Any = ConnectionPool(database_url, min_size=connections, max_size=most, kwargs=settings, open=True)
        pool.wait()

        def tools(state: State) -> dict[str, Any]:
            call = state["messages"][-1].tool_calls[0]
            answer = interrupt({"prompt": call["args"]["summary"]})
            entered(answer)
            content = json.dumps({"approved": answer["approved"], "comment": answer["comment"]})
            return {"messages": [ToolMessage(content, tool_call_id=call["id"])]}

        graph = StateGraph(State)
        graph.add_node("model", model)
        graph.add_node("tools", tools)
        graph.add_edge(START, "model")
        graph.add_conditional_edges("model", next_node, ["tools", END])
        graph.add_edge("tools", "model")
        self._graph = graph.compile(checkpointer=PostgresSaver(pool))

    def turn(self, run_id: str) -> None:
        state = self._graph.invoke({"messages": [("user", "Please send the Q3 report.")]}, _thread(run_id))
        assert "__interrupt__" in state, state

    def reenter(self, run_id: str, answer: dict[str, Any]) -> None:
        state = self._graph.invoke(Command(resume=answer), _thread(run_id))
        assert state["messages"][-1].content.startswith("Report sent"), state


def _thread(run_id: str) -> Any:
    return {"configurable": {"thread_id": run_id}}


def set_up(database_url: str) -> None:
    with PostgresSaver.from_conn_string(database_url) as saver:
        saver.setup()


if __name__ == "__main__":
    set_up(sys.argv[1])
