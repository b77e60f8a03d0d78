"""This version repeats the outcomes of an earlier version."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kbproc.base.params import WriteParams
from kbproc.base.values import filled
from kbproc.engine.store.decision import Decide, Decision, DecisionState
from kbproc.knowledge.documents.document import Document
from kbproc.methods.all import registry
from kbproc.methods.calls.call import Call
from kbproc.methods.calls.method import Method
from kbproc.methods.calls.registry import Registry
from kbproc.methods.calls.schemas import result_schema
from tests.conftest import OpenSession
from tests.kit.schemas import fit

CREATE = registry().methods["doc.create"]
ASKED = {"title": "One", "text": "The first.", "client_token": "t"}


def earlier(method: Method, without: str) -> Method:
    """Returns the method of an earlier version, whose answers lack one member."""

    def handler(call: Call, params: WriteParams) -> Decide:
        decide = method.handler(call, params)

        def decided(here: DecisionState) -> Decision:
            decision: Decision = decide(here)
            data = msgspec.to_builtins(decision.data)
            del data[without]
            return msgspec.structs.replace(decision, data=data)

        return decided

    return msgspec.structs.replace(method, handler=handler, result=dict[str, Any])


def test_an_outcome_of_an_earlier_version_has_the_members_of_this_one(
    open_session: OpenSession,
) -> None:
    old = open_session(registry=Registry({CREATE.name: earlier(CREATE, "pages")}))
    first = old.data("doc.create", **ASKED)
    assert "pages" not in first
    old.library.close()
    again = open_session().ask("doc.create", **ASKED)["result"]
    assert again["meta"]["duplicate"] is True
    assert again["data"] == {**first, "pages": None}
    fit(again, result_schema(CREATE))


@pytest.mark.parametrize("told", [None, {"purged": 7}, [1]])
def test_what_is_no_such_outcome_is_left_as_it_is(told: Any) -> None:
    assert filled(told, Document) == told
