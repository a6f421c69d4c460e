"""The safeguards that are taken out, by what they guard. Each names the tests that must fail without it."""

from __future__ import annotations

from typing import Final

from tests.safeguards.safeguard import Safeguard

ANSWER: Final = "adjourn/tasks/answers/answering.py"
VALIDATION: Final = "adjourn/tasks/answers/validation.py"
APPROVALS: Final = "adjourn/tasks/engine/approvals.py"
DOOR: Final = "tests/flow/test_one_door.py"
ANSWERS: Final = "tests/flow/test_answers.py"
APPROVED: Final = "tests/flow/test_approvals.py"
INCOMPLETE: Final = "tests/flow/test_incomplete_responses.py"
DAMAGED: Final = "tests/flow/test_damaged_rows.py"
FIRST: Final = "tests/flow/test_ask_any.py"
QUESTIONS: Final = "tests/flow/test_questions.py"
BUILDS: Final = "tests/flow/test_builds.py"
UNREADABLE: Final = "tests/flow/test_unreadable_answers.py"

VALIDATED: Final = (
    Safeguard(
        "credentials are compared with their signature",
        "adjourn/schemas/records/credentials.py",
        "if prefix != _PREFIX or not hmac.compare_digest(",
        "if prefix != _PREFIX or False and not hmac.compare_digest(",
        ("tests/unit/test_credentials.py",),
    ),
    Safeguard(
        "the pinned schema validates an answer",
        VALIDATION,
        "        validate_pinned(action.resume_schema, answer.data, action.name)\n",
        "",
        (f"{DOOR}::test_after_a_deploy_the_pinned_schema_decides",),
    ),
    Safeguard(
        "the live model validates an answer",
        VALIDATION,
        "    if contract is not None:\n",
        "    if contract is not None and False:\n",
        (f"{DOOR}::test_a_live_model_of_the_same_shape_is_still_asked",),
    ),
    Safeguard(
        "an answer that only the model can validate waits for a worker with the app",
        VALIDATION,
        "        raise Unproven\n",
        "        pass\n",
        (f"{DOOR}::test_without_the_app_nothing_is_accepted_that_the_live_model_has_not_seen",),
    ),
    Safeguard(
        "a process whose app lacks the block leaves the answer to others",
        VALIDATION,
        "(app is None or app.lacks(action.origin))",
        "app is None",
        (f"{DOOR}::test_a_door_without_the_block_leaves_kept_answers_to_those_that_have_it",),
    ),
    Safeguard(
        "a value that a default makes is made once",
        VALIDATION,
        "return contract.canonical(data, action.name)[1]",
        "return (contract.canonical(data, action.name), data)[1]",
        (f"{DOOR}::test_a_value_that_a_default_makes_is_made_once",),
    ),
    Safeguard(
        "an answer without data is not an answer of null",
        VALIDATION,
        "    if not answer.has_data:\n",
        "    if False:\n",
        ("tests/cases/test_validating_answers.py::test_a_missing_value_is_not_a_null_one",),
    ),
    Safeguard(
        "an answer that does not fit leaves its action waiting",
        ANSWER,
        "        fits=checked.misfit is None,\n",
        "        fits=True,\n",
        (f"{ANSWERS}::test_refusals_name_the_field_and_leave_id_and_deadline_as_they_were",),
    ),
    Safeguard(
        "a validator may raise anything",
        "adjourn/schemas/contracts/values.py",
        "except BaseException as problem:  # a default factory",
        "except ArithmeticError as problem:  # a default factory",
        (f"{DOOR}::test_a_default_that_breaks_costs_the_answer_a_rejection",),
    ),
    Safeguard(
        "what is asked is proven against the value given",
        "adjourn/schemas/contracts/values.py",
        "if held is given or not self._has_unions",
        "if True",
        ("tests/unit/test_given_values.py::test_a_value_that_json_would_change_is_refused",),
    ),
    Safeguard(
        "times are compared as instants",
        "adjourn/schemas/contracts/round_trip.py",
        "return _same_time(went, came)",
        "return bool(went == came)",
        ("tests/unit/test_given_values.py::test_times_in_the_repeated_and_the_skipped_hour_come_back",),
    ),
    Safeguard(
        "an output of its declared type is written and not proven",
        "adjourn/tasks/execution/body.py",
        'tool.output.write(result, f"tool {tool.name!r}", ToolOutputError)',
        'tool.output.dump(result, f"tool {tool.name!r}", ToolOutputError)',
        ("tests/cases/test_values_kept.py::test_a_mail_that_was_sent_is_not_sent_again_for_the_form_of_its_receipt",),
    ),
    Safeguard(
        "a call of an incomplete response does not run",
        "adjourn/tasks/engine/conversation.py",
        "_own(call, cut_off(response.finish_reason))",
        "_own(call, None)",
        (f"{INCOMPLETE}::test_no_call_of_a_response_that_is_not_complete_runs",),
    ),
    Safeguard(
        "a text of an incomplete response is no final output",
        "adjourn/tasks/blocks/agents.py",
        "cut_off(response.finish_reason) or self._text_problem",
        "self._text_problem",
        (f"{INCOMPLETE}::test_a_final_output_made_of_defaults_is_no_output",),
    ),
    Safeguard(
        "a name that is not a tool's runs no tool",
        "adjourn/tasks/engine/interpreter.py",
        "None if call.misnamed is not None else tools.get(call.tool)",
        "tools.get(call.tool)",
        (f"{INCOMPLETE}::test_a_name_that_only_looks_like_a_tools_runs_nothing",),
    ),
    Safeguard(
        "a name that is not final_result ends no agent",
        "adjourn/tasks/blocks/agents.py",
        "call.tool == FINAL_TOOL and call.misnamed is None",
        "call.tool.rstrip('_') in (FINAL_TOOL, 'final.result')",
        (f"{INCOMPLETE}::test_a_name_that_looks_like_the_end_ends_nothing",),
    ),
    Safeguard(
        "a damaged item fails its run",
        "adjourn/store/postgres/runs/claims.py",
        "    if (damage := damage_of(run, items, row.seq, actions)) is not None:\n",
        "    if (damage := damage_of(run, items, row.seq, actions)) is not None and False:\n",
        (f"{DAMAGED}::test_a_run_with_a_damaged_item_fails_and_names_the_row",),
    ),
    Safeguard(
        "a lost item is a damage",
        "adjourn/store/postgres/damage.py",
        "    if len(items) != seq:\n",
        "    if False:\n",
        (f"{DAMAGED}::test_a_lost_item_is_a_damage",),
    ),
    Safeguard(
        "a lost wait is a damage",
        "adjourn/store/postgres/damage.py",
        '        if waits and body.kind == "suspension" and body.action_id not in there:\n',
        "        if False:\n",
        ("tests/flow/test_lost_rows.py::test_a_lost_wait_beside_another_is_not_asked_again",),
    ),
    Safeguard(
        "a damaged action is not left out of a claim",
        "adjourn/store/postgres/runs/claims.py",
        "actions_of(row.actions, refuse)",
        "actions_of(row.actions)",
        (f"{DAMAGED}::test_a_damaged_resolution_fails_the_run_that_reads_it",),
    ),
)

AUTHORISED: Final = (
    Safeguard(
        "only those who may answer an action answer it",
        ANSWER,
        "    if action.answerers is not None and who not in action.answerers:\n",
        "    if False:\n",
        (f"{ANSWERS}::test_only_those_who_may_answer_do",),
    ),
    Safeguard(
        "an answer for another action is refused",
        ANSWER,
        "    if answer.name is not None and answer.name != action.name:\n",
        "    if False:\n",
        ("tests/cases/test_validating_answers.py::test_right_id_under_another_name_or_kind_is_refused",),
    ),
    Safeguard(
        "an ambiguous request id is refused",
        ANSWER,
        "    if len(found) > 1:\n",
        "    if False:\n",
        (f"{ANSWERS}::test_an_ambiguous_request_id_is_refused",),
    ),
    Safeguard(
        "a credential is for one action",
        "adjourn/schemas/records/credentials.py",
        "    if claims.scope not in (ANY_ACTION, action_id):\n",
        "    if False:\n",
        (f"{DOOR}::test_a_credential_is_for_its_action_and_its_time",),
    ),
    Safeguard(
        "a credential runs out",
        "adjourn/schemas/records/credentials.py",
        "    if claims.exp is not None and claims.exp <= now():\n",
        "    if False:\n",
        (f"{DOOR}::test_a_credential_is_for_its_action_and_its_time",),
    ),
    Safeguard(
        "what Redis says was signed by this deployment",
        "adjourn/schemas/internal/signatures.py",
        "return text if matches and separator == _SEPARATOR else None",
        "return text if separator == _SEPARATOR else None",
        (f"{DOOR}::test_a_parking_record_that_somebody_wrote_lets_nothing_past",),
    ),
    Safeguard(
        "the record of one action is not that of another",
        "adjourn/store/redis/parking.py",
        'return f"parking record 1 {action_id}"',
        'return "parking record 1"',
        (f"{DOOR}::test_the_record_of_another_action_is_none_of_this_one",),
    ),
    Safeguard(
        "who answers is proved before an answer is kept for a worker",
        ANSWER,
        "    kept = keep_for_worker(door, answer, action_id, who, channel, awaited=wait)\n",
        "    kept = keep_for_worker(door, answer, action_id, None, channel, awaited=wait)\n",
        (f"{DOOR}::test_who_answers_is_proved_before_an_answer_is_kept",),
    ),
    Safeguard(
        "early and kept answers are bounded for each action",
        "adjourn/store/postgres/answers/early_answers.py",
        "where action_id = :action_id and receipt is null) < :per_action",
        "where action_id = :action_id and receipt is null) < :per_action + 1000",
        (f"{ANSWERS}::test_too_many_early_answers_are_refused",),
    ),
    Safeguard(
        "the channel of an answer is recorded",
        ANSWER,
        "        channel=channel,\n        fits=",
        "        channel=None,\n        fits=",
        ("tests/flow/test_what_was_answered.py::test_each_channel_has_its_name",),
    ),
    Safeguard(
        "another reason is another answer",
        ANSWER,
        '    if answer.kind != "cancel" and answer.reason is not None:\n',
        "    if False:\n",
        ("tests/flow/test_short_answers.py::test_the_same_words_with_another_reason_are_another_answer",),
    ),
    Safeguard(
        "a resolver answers the action that it was given",
        "adjourn/tasks/execution/resolving.py",
        'return said.model_copy(update={"action_id": action.id}) if said.action_id == action.request_id else said',
        "return said",
        (
            "tests/flow/test_short_answers.py"
            "::test_a_resolver_that_answers_in_short_answers_the_action_that_it_was_given",
        ),
    ),
    Safeguard(
        "an id that no answer could name opens nothing",
        "adjourn/tasks/context/request_ids.py",
        "    if value is None:\n        return None\n",
        "    if value is None or True:\n        return value\n",
        ("tests/flow/test_short_answers.py",),
    ),
    Safeguard(
        "a denial of any policy holds",
        APPROVALS,
        "    if denials:\n",
        "    if denials and not demands:\n",
        (f"{APPROVED}::test_the_strictest_of_all_policies_holds_in_any_order",),
    ),
    Safeguard(
        "a policy that raises lets nothing run",
        APPROVALS,
        "    if problems:\n",
        "    if False:\n",
        ("tests/flow/test_odd_code_outside.py::test_a_call_that_a_policy_cannot_judge_does_not_run",),
    ),
    Safeguard(
        "all policies are asked again before an approved call runs",
        APPROVALS,
        "    begun = len(open_call.actions) > len(approvals) or",
        "    begun = bool(approvals) or",
        (
            f"{APPROVED}::test_an_edit_is_held_to_every_policy_again",
            f"{APPROVED}::test_a_policy_that_a_deploy_adds_holds_for_a_call_that_was_approved_before",
        ),
    ),
    Safeguard(
        "the yes of one person does not meet the demand for another",
        APPROVALS,
        "return name if people is None else f\"{name} of {', '.join(sorted(people))}\"",
        "return name",
        (f"{APPROVED}::test_the_yes_of_one_person_does_not_meet_the_demand_for_another",),
    ),
    Safeguard(
        "an approval of other arguments is no approval of these",
        APPROVALS,
        "if digest(_filled(block, approved_input(block, state))[0]) == now]",
        "if True]",
        (f"{APPROVED}::test_different_people_are_asked_one_after_the_other",),
    ),
    Safeguard(
        "an edit is allowed only if all demands allow it",
        APPROVALS,
        "        edit=all(each.edit for each in demands),\n",
        "        edit=any(each.edit for each in demands),\n",
        (f"{APPROVED}::test_two_demands_of_the_same_people_are_one_question_as_strict_as_both",),
    ),
    Safeguard(
        "the call that was shown is the call that runs",
        "adjourn/tasks/blocks/policies.py",
        'return block.called(state.action.input["args"] if edited is None else edited)',
        "return block.called({} if edited is None else edited)",
        (f"{APPROVED}::test_an_approval_shows_the_call_with_its_defaults", "tests/flow/test_policies.py"),
    ),
    Safeguard(
        "an approver is shown the defaults",
        APPROVALS,
        '        return block.input.filled(value, f"tool {block.name!r}")\n',
        "        return value, ()\n",
        (f"{APPROVED}::test_an_approval_shows_the_call_with_its_defaults",),
    ),
    Safeguard(
        "the model reads the arguments that ran",
        "adjourn/tasks/engine/conversation.py",
        'return call.model_copy(update={"args": changed[-1]}) if changed else call',
        "return call",
        (f"{APPROVED}::test_the_model_reads_what_was_run_and_who_changed_it",),
    ),
)

DEPLOYED: Final = (
    Safeguard(
        "the live model is asked only where it is the pinned one",
        "adjourn/tasks/blocks/app.py",
        "each.reads(pinned)",
        "True",
        (f"{DOOR}::test_after_a_deploy_the_pinned_schema_decides",),
    ),
    Safeguard(
        "an answer that the body cannot read fails the run",
        "adjourn/tasks/execution/body.py",
        "    if record.fault is not None:\n        went_on",
        "    if False:\n        went_on",
        (f"{UNREADABLE}::test_a_remembered_result_that_has_another_type_now_fails_the_run_and_a_retry_reads_it",),
    ),
    Safeguard(
        "the input of a block that has begun is readable",
        "adjourn/tasks/engine/interpreter.py",
        "if of_step is not None or self._has_begun(",
        "if False and self._has_begun(",
        (f"{UNREADABLE}::test_the_input_of_a_block_that_has_begun_fails_the_run_if_it_cannot_be_read",),
    ),
    Safeguard(
        "a router that chooses another route fails the run",
        "adjourn/tasks/engine/interpreter.py",
        "        if chosen[place.call_id] != taken:\n",
        "        if False:\n",
        ("tests/flow/test_waits_in_agents_and_routers.py::test_a_selector_that_reads_what_has_changed_fails_the_run",),
    ),
    Safeguard(
        "a step that is gone fails the run",
        "adjourn/tasks/engine/interpreter.py",
        "        if gone := [name for name in begun if name not in steps]:\n",
        "        if gone := []:\n",
        ("tests/flow/test_changed_blocks.py::test_a_finished_branch_that_is_gone_is_not_left_out_of_the_output",),
    ),
)

BUILT: Final = (
    Safeguard(
        "an outdated build leaves a call of a tool that it lacks",
        "adjourn/tasks/execution/outdated.py",
        "if lacks and is_outdated(build):",
        "if False:",
        (f"{BUILDS}::test_an_old_build_does_not_answer_a_call_of_a_tool_that_it_lacks",),
    ),
    Safeguard(
        "an outdated build asks nobody anew",
        "adjourn/tasks/execution/outdated.py",
        "if asked_anew is not None and is_outdated(build):",
        "if False:",
        (f"{BUILDS}::test_an_old_build_asks_nobody_anew",),
    ),
    Safeguard(
        "only the newest live build fails a run",
        "adjourn/tasks/execution/writer.py",
        "            if not (isinstance(error, CodeMismatchError) and self._is_left(error)):\n",
        "            if True:\n",
        (f"{BUILDS}::test_an_old_build_leaves_what_it_cannot_drive_to_the_newer_one",),
    ),
    Safeguard(
        "a row of a newer version is not a damaged one",
        "adjourn/store/postgres/runs/endings.py",
        " and r.state_version <= {STATE_VERSION}",
        "",
        (f"{DAMAGED}::test_a_row_of_a_newer_version_is_not_a_damaged_one",),
    ),
)

ASKED: Final = (
    Safeguard(
        "the first answer closes the other waits of its question",
        "adjourn/store/postgres/answers/actions.py",
        "case when v.accepted or a.{DECIDES} then a.any_of end as decided_group,",
        "case when false then a.any_of end as decided_group,",
        (f"{FIRST}::test_the_first_answer_counts_and_the_others_are_closed",),
    ),
    Safeguard(
        "of several defaults that are due one answers",
        "adjourn/store/postgres/runs/recovery.py",
        "where first.any_of = late.any_of and first.id <> late.id",
        "where false and first.any_of = late.any_of and first.id <> late.id",
        (f"{FIRST}::test_a_default_at_a_deadline_is_an_answer",),
    ),
    Safeguard(
        "another question never gets the answer",
        "adjourn/tasks/context/questions.py",
        "        if digest(now) == digest(wait.question_in(recorded)):\n",
        "        if True:\n",
        (f"{QUESTIONS}::test_a_question_that_differs_is_asked_anew_once_and_its_answer_counts",),
    ),
    Safeguard(
        "a question is asked anew once",
        "adjourn/tasks/context/waits.py",
        "        if len(earlier) >= _TIMES_ASKED:\n",
        "        if False:\n",
        (f"{QUESTIONS}::test_a_question_that_differs_every_time_fails_and_names_the_field",),
    ),
    Safeguard(
        "the type of an undeclared wait is pinned",
        "adjourn/tasks/context/waits.py",
        "            self._ensure_same_type(known, wait)\n",
        "            pass\n",
        ("tests/flow/test_ask_terms.py",),
    ),
    Safeguard(
        "an ask refuses what it would ignore",
        "adjourn/tasks/context/waits.py",
        "            self._ensure_alone(reason=reason, message=message, resume=resume)\n",
        "",
        ("tests/flow/test_ask_terms.py",),
    ),
    Safeguard(
        "who may answer can be said at the ask",
        "adjourn/schemas/records/wait_points.py",
        "own.answerers = self.answerers if answerers is None else checked_answerers(where, answerers)",
        "own.answerers = self.answerers",
        ("tests/flow/test_ask_terms.py", f"{FIRST}::test_who_may_answer_is_said_for_each"),
    ),
    Safeguard(
        "the end of a child that a retry revives meanwhile is not told",
        "adjourn/store/postgres/runs/children.py",
        " and r.revision = (select parent_revision from child)",
        "",
        ("tests/flow/test_retries_beside_ends.py::test_the_end_of_a_child_that_a_retry_revives_meanwhile_is_not_told",),
    ),
    Safeguard(
        "a pass that does not come by an accepted answer fails the run",
        "adjourn/tasks/execution/body.py",
        "        ensure_answers_used(ctx)\n",
        "        pass\n",
        ("tests/flow/test_answers_without_effect.py",),
    ),
)

SAFEGUARDS: Final = VALIDATED + AUTHORISED + DEPLOYED + BUILT + ASKED
