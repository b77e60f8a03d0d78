"""What holds for the declaration of every method."""

import pytest

from kbproc.calls.method import Method
from kbproc.methods.all import registry

METHODS = list(registry().methods.values())


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_method_lies_in_the_file_of_its_name(method: Method) -> None:
    name = method.name.replace("store.import", "store.import_")
    assert method.handler.__module__ == f"kbproc.methods.{name}"
    assert method.params.__module__ in {method.handler.__module__, "kbproc.search.params"}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_a_write_that_takes_several_records_has_a_plan(method: Method) -> None:
    is_long = method.streams and method.kind != "read"
    assert (method.plan is not None) == is_long
