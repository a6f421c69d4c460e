"""Ids: ours, in order of age, legal everywhere; those of actions cannot be made up."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adjourn.schemas.errors import IllegalIdError
from adjourn.schemas.records import ids
from adjourn.schemas.records.ids import check_own_id, is_action_id, new_action_id, new_call_id, new_run_id

KEY, OTHER = b"key", b"other"
MADE = new_action_id(KEY)


def test_later_ids_sort_after_earlier_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [1.0, 31.999, 32.0, 1_000.0, 1_700_000_000.0, 1_700_000_000.001, 4_000_000_000.0]
    made = []
    for moment in moments:
        monkeypatch.setattr(ids.time, "time", lambda moment=moment: moment)
        made.append(new_run_id())
    assert made == sorted(made)


def test_ids_are_legal_for_every_provider() -> None:
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,40}", new_call_id())
    assert len({new_call_id() for _ in range(1_000)}) == 1_000


def test_an_action_id_is_of_the_key_that_signed_it() -> None:
    made = new_action_id(KEY)
    assert is_action_id(made, KEY)
    assert not is_action_id(made, OTHER)


@given(st.text())
def test_no_text_is_taken_for_an_action_id(text: str) -> None:
    assert not is_action_id(text, KEY)
    assert not is_action_id(f"act_{text}", KEY)


@given(st.data())
def test_a_changed_action_id_is_none(data: st.DataObject) -> None:
    at = data.draw(st.integers(len("act_"), len(MADE) - 1))
    other = data.draw(st.characters(exclude_characters=MADE[at]))
    assert not is_action_id(MADE[:at] + other + MADE[at + 1 :], KEY)


@pytest.mark.parametrize("legal", ["a", "mail-17", "user:42", "x" * 100])
def test_an_id_of_the_callers_own_is_taken(legal: str) -> None:
    assert check_own_id("run id", legal) == legal


@pytest.mark.parametrize("illegal", ["", "a\x00b", "a b", "ä", "x" * 101, "a\n"])
def test_an_id_that_cannot_be_used_everywhere_is_refused(illegal: str) -> None:
    with pytest.raises(IllegalIdError) as refused:
        check_own_id("run id", illegal)
    assert refused.value.id == illegal
