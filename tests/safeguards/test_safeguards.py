"""The catalogue of safeguards is up to date, and a trial tells a missing safeguard from one that is there."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.summary import ROOT
from tests.safeguards.catalog import SAFEGUARDS
from tests.safeguards.safeguard import Safeguard
from tests.safeguards.trial import attempt, broken, checkout

pytestmark = pytest.mark.timeout(900)
QUICK = SAFEGUARDS[0]


@pytest.mark.parametrize("safeguard", SAFEGUARDS, ids=lambda each: each.rule)
def test_the_code_of_each_safeguard_stands_where_the_catalogue_says(safeguard: Safeguard) -> None:
    code = (ROOT / safeguard.file).read_text()
    compile(broken(safeguard, code), safeguard.file, "exec")
    for test in safeguard.tests:
        file, _, name = test.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / file).read_text() if name else (ROOT / file).exists()


def test_there_are_fifty_safeguards_and_no_rule_is_named_twice() -> None:
    assert [rule for rule, times in Counter(each.rule for each in SAFEGUARDS).items() if times > 1] == []
    assert len(SAFEGUARDS) >= 50


def test_a_trial_notices_that_a_safeguard_is_missing() -> None:
    with checkout() as folder:
        trial = attempt(QUICK, folder)
        unbroken = attempt(Safeguard(QUICK.rule, QUICK.file, QUICK.text, QUICK.text, QUICK.tests), folder, sound=False)
    assert trial.noticed, trial.printed
    assert not unbroken.noticed, unbroken.printed
