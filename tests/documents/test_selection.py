"""Params become the catalog's filter, and an empty selection is known as such."""

from __future__ import annotations

from typing import Any

import pytest

from kbproc.base.errors import KbprocError
from kbproc.engine.projections.catalog.filters import DocumentFilter
from kbproc.knowledge.documents.selection import Selection, filter_of, kbs_of


@pytest.mark.parametrize("kb, kbs", [(None, None), ("ab", ["ab"]), (["a", "b"], ["a", "b"])])
def test_one_knowledge_base_is_a_list_of_one(kb: Any, kbs: list[str] | None) -> None:
    assert kbs_of(kb) == kbs
    assert filter_of(Selection(kb=kb)).kbs == kbs


@pytest.mark.parametrize(
    "members, is_everything",
    [
        ({}, True),
        ({"tags_mode": "any"}, True),
        ({"metadata": {}}, True),
        ({"tags": []}, True),
        ({"kb": "a"}, False),
        ({"metadata": {"n": 0}}, False),
        ({"source_id": "x"}, False),
        ({"created_before": "2026-01-01"}, False),
    ],
)
def test_a_selection_without_conditions_selects_everything(
    members: dict[str, Any], is_everything: bool
) -> None:
    selection = Selection(**members)
    assert selection.is_everything == is_everything
    assert (filter_of(selection) == DocumentFilter(tags_mode=selection.tags_mode)) == is_everything


def test_every_condition_reaches_the_filter() -> None:
    members: dict[str, Any] = {
        "types": ["text"],
        "metadata": {"n": 1},
        "path_prefix": "/a",
        "url": "http://a",
        "title_contains": "T",
    }
    selection = Selection(
        **members, tags=["b", "a", "b"], tags_mode="any", source_id="x", created_after="2026-01-02"
    )
    filter = filter_of(selection, hide_superseded=True)
    assert {name: getattr(filter, name) for name in members} == members
    assert (filter.source_ids, filter.tags_mode, filter.hide_superseded) == (["x"], "any", True)
    assert filter.tags is not None
    assert sorted(filter.tags) == ["a", "b"]
    assert filter.created_after == "2026-01-02T00:00:00.000Z"


def test_a_wrong_moment_is_refused_with_its_name() -> None:
    with pytest.raises(KbprocError) as caught:
        filter_of(Selection(created_before="yesterday"))
    assert caught.value.field == "$.params.created_before"
