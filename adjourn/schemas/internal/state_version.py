"""The version of what is stored, and the ledger of what each version changed.

A worker reads every version in the ledger and writes the newest.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

STATE_VERSION: Final = 5

LEDGER: Final = MappingProxyType(
    {
        1: "First version: runs, actions, and items of these kinds: message, response, output, start, memo, "
        "suspension, resolution, fault, end.",
        2: "Blocks: responses name the call of their agent (without one, the run's block); messages may carry data; "
        "items of three more kinds: correction, route, retry; actions of style `policy`; items without what is as by "
        "default.",
        3: "Children: actions may name the run that they wait for; runs may have a parent, and then a path.",
        4: "Children: actions say which call has started the run, and whether its limits are a share; what it has used "
        "stands beside how it ended.",
        5: "Answers and deploys: actions name the waits that an answer closes with them, what nobody set, who demanded "
        "an approval, and whether their schema decides; responses say what their model was told; outputs say who "
        "approved their call and what was changed; a call may have a name that no tool has.",
    }
)
