"""What the policies of an agent together make of a call: it passes, is declined, or waits for an approval.

All policies are asked, and the strictest holds in any order: a denial beats an approval, and an approval beats
silence. Arguments that a person edits make a new call, about which all policies are asked again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any, Final

from adjourn.schemas.errors import PayloadError
from adjourn.schemas.records.actions import ActionState, OnTimeout
from adjourn.schemas.records.wait_points import UNSET
from adjourn.schemas.strict_json import JsonValue, clean_text, digest, dumps
from adjourn.tasks.blocks.agents import Agent
from adjourn.tasks.blocks.block import Block
from adjourn.tasks.blocks.policies import (
    Deny,
    PartlyShownCall,
    Policy,
    PolicyCall,
    RequireApproval,
    ShownCall,
    ToolApproval,
    approval_wait_point,
    approved_input,
    is_approval,
)
from adjourn.tasks.blocks.user_code import describe_error, discard
from adjourn.tasks.context.facade import Context, PassRecord, Recorder, refusal_of, wait_of
from adjourn.tasks.engine.activities import OpenCall
from adjourn.tasks.engine.decisions import View
from adjourn.tasks.engine.origins import fingerprint_of, input_schema_of, origin_of
from adjourn.tasks.engine.results import Output, Suspended, refusal

_STRICT: Final[tuple[OnTimeout, ...]] = ("fail_run", "error")
"""What a deadline may do other than answer, the strictest first. An `error` is a denial."""


@dataclass(frozen=True)
class _Demands:
    """The approvals that policies demand of one call and that nobody has given yet, by the name of the policy."""

    args: dict[str, Any]
    not_shown: tuple[str, ...]
    """Parameters with a default that has no place in `args`."""
    by_policy: dict[str, RequireApproval]


def held_by_policies(open_call: OpenCall, view: View, recorder: Recorder) -> Output | Suspended | None:
    """What keeps the call from running, or None if it may run.

    A call whose body has begun has passed: it has a wait, a memo or a start of its own. Until then all policies are
    asked again after each approval: a deploy may have brought another policy, and an edit is another call.
    """
    approvals = [state for state in open_call.actions if is_approval(state)]
    for state in approvals:
        if (denied := _denied(state)) is not None:
            return denied
    begun = len(open_call.actions) > len(approvals) or bool(open_call.memos) or open_call.died
    if begun or open_call.agent is None or not open_call.agent.policies:
        return None
    assert open_call.block is not None
    verdict = _verdict(open_call.agent, open_call.block, open_call, view, _given(open_call, approvals))
    return _ask(verdict, open_call, view, recorder) if isinstance(verdict, _Demands) else verdict


def _denied(approval: ActionState) -> Output | None:
    """The denial that an approval ended with; None if it was given."""
    refused = refusal_of(approval)
    if refused is not None:
        return refusal(refused)
    said = approval.resolution.resume if approval.resolution else {}
    if said["approved"]:
        return None
    comment = f" (reason: {said['comment']})" if said.get("comment") else ""
    return Output("declined", f"declined: {approval.action.prompt or dumps(approval.action.input)}{comment}")


def _given(open_call: OpenCall, approvals: Sequence[ActionState]) -> set[str] | None:
    """The demands that were met for the call exactly as it is now; None for all of them.

    An approval that an earlier version has opened does not say whose demand it is. It was of every demand.
    """
    block = open_call.block
    assert block is not None
    now = digest(_filled(block, open_call.input)[0])
    met = [state for state in approvals if digest(_filled(block, approved_input(block, state))[0]) == now]
    if any(not state.demanded_by for state in met):
        return None
    return {name for state in met for name in state.demanded_by}


def _filled(block: Block, value: JsonValue) -> tuple[JsonValue, tuple[str, ...]]:
    """The input as the body will get it, and the parameters of which a part cannot be shown."""
    try:
        return block.input.filled(value, f"tool {block.name!r}")
    except PayloadError:
        return value, ()


def _verdict(
    agent: Agent, block: Block, open_call: OpenCall, view: View, given: Collection[str] | None
) -> Output | _Demands | None:
    """Ask every policy. A policy that raises, or returns something else than a verdict, lets nothing run."""
    filled, not_shown = _filled(block, open_call.input)
    args = block.args_of(filled)
    problems: list[str] = []
    denials: list[str] = []
    demands: dict[str, RequireApproval] = {}
    for name, policy in _named(agent.policies):
        try:
            # A copy for each: one that hides a secret for its log would change what is shown, and not what runs.
            call = PolicyCall(agent=agent.name, tool=open_call.call.tool, args=deepcopy(args), run=view.run)
            verdict: object = policy(call)
            if isinstance(verdict, Deny):
                denials.append(str(verdict.reason))
            elif isinstance(verdict, RequireApproval):
                demands[name] = verdict
            elif verdict is not None:
                discard(verdict)
                problems.append(f"a policy returned {type(verdict).__name__}, not a RequireApproval, a Deny or None")
        except BaseException as error:  # it is code of the user, and may return an object of any kind
            problems.append(f"a policy could not judge this call: {describe_error(error)}")
    if denials:
        return Output("declined", clean_text(f"declined by policy: {'; '.join(denials)}"))
    if problems:
        return Output("error", problems[0])
    try:
        named = {_demand(name, demand): demand for name, demand in demands.items()}
    except BaseException as error:  # who is to answer is the user's to say, and may be anything
        return Output("error", f"a policy demands an approval that cannot be asked for: {describe_error(error)}")
    open_demands = {} if given is None else {name: each for name, each in named.items() if name not in given}
    return _Demands(args, not_shown, open_demands) if open_demands else None


def _named(policies: Sequence[Policy]) -> list[tuple[str, Policy]]:
    """The policies with names that a later process finds again. A renamed policy is asked for its approval again.

    Policies of one name are told apart by their order.
    """
    seen: Counter[str] = Counter()
    named = []
    for policy in policies:
        name = _name(policy)
        seen[name] += 1
        named.append((f"{name}#{seen[name]}", policy))
    return named


def _name(policy: Policy) -> str:
    if isinstance(policy, ToolApproval):
        # With what is asked: the yes to another question does not meet a demand that a deploy has put before it. What
        # a function demands may be worded anew on each look, so its name is all that is known of it.
        asked = "" if policy.approval.prompt is None else f": {policy.approval.prompt}"
        return f"require_approval({', '.join(policy.tools)}){asked}"
    try:
        return str(getattr(policy, "__qualname__", type(policy).__qualname__))
    except BaseException:  # a policy is an object of the user's
        return type(policy).__qualname__


def _demand(name: str, approval: RequireApproval) -> str:
    """A demand, by its policy and the people who may meet it: the yes of others does not meet it."""
    people = _people(approval)
    return name if people is None else f"{name} of {', '.join(sorted(people))}"


def _ask(demands: _Demands, open_call: OpenCall, view: View, recorder: Recorder) -> Output | Suspended:
    """Open the approval of the people whom the first demand names; other people are asked after them.

    Demands of the same people are one question.
    """
    block, call = open_call.block, open_call.call
    assert block is not None
    try:
        people = _people(next(iter(demands.by_policy.values())))
        asked = {name: each for name, each in demands.by_policy.items() if _people(each) == people}
        approval = _together([*asked.values()])
        shown = ShownCall(prompt=approval.prompt or f"May {call.tool} run?", tool=call.tool, args=demands.args)
        if demands.not_shown:
            shown = PartlyShownCall(**dict(shown), not_shown=[*demands.not_shown])
        wait = approval_wait_point(approval, block.input.type, type(shown))
        ctx = Context(
            call=call,
            input=None,
            tool=call.tool,
            wait_points={wait.name: wait},
            fingerprint=fingerprint_of(block),
            input_schema=input_schema_of(block),
            origin=lambda wait_point: origin_of(open_call, view, wait_point),
            actions=open_call.actions,
            memos={},
            recorder=recorder,
            record=PassRecord(),
        )
        update = {"style": "policy", "demanded_by": tuple(asked)}
        return Suspended((wait_of(ctx, wait, shown).model_copy(update=update),))
    except BaseException as error:
        return Output("error", f"a policy demands an approval that cannot be asked for: {describe_error(error)}")


def _people(approval: RequireApproval) -> frozenset[str] | None:
    return None if approval.answerers is None else frozenset(approval.answerers)


def _together(demands: Sequence[RequireApproval]) -> RequireApproval:
    """One approval that is as strict as each of these."""
    if len(demands) == 1:
        return demands[0]
    prompts = dict.fromkeys(each.prompt for each in demands if each.prompt is not None)
    timeouts = [each.timeout for each in demands if each.timeout is not None]
    approval = RequireApproval(
        prompt="; ".join(prompts) or None,
        edit=all(each.edit for each in demands),
        timeout=min(timeouts, default=None),
        answerers=demands[0].answerers,
    )
    if approval.timeout is None:
        return approval
    return _as_strict(approval, demands)


def _as_strict(approval: RequireApproval, demands: Sequence[RequireApproval]) -> RequireApproval:
    """The approval with the strictest deadline. Defaults that differ agree on nothing but a denial."""
    for word in _STRICT:
        if any(each.on_timeout == word for each in demands):
            return replace(approval, on_timeout=word)
    defaults = [each.default for each in demands]
    if any(each is UNSET for each in defaults) or any(each != defaults[0] for each in defaults):
        return replace(approval, on_timeout="error")
    return replace(approval, default=defaults[0])
