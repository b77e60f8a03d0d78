"""The files that are made of the schemas, by their paths in the repository.

Owns: which there are.
Refuses to know: what stands in them, and whether they are up to date.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from kbproc.calls.method import Method
from kbproc.calls.schemas.schema import all_schemas
from kbproc.repo.bundle import bundle, index
from kbproc.repo.typescript import typescript

FOLDER = "schemas/v1"


def files(methods: Iterable[Method]) -> dict[str, str]:
    """Path → text."""
    found = [*methods]
    schemas = all_schemas(found)
    whole, told = bundle(schemas), index(found)
    made = {**schemas, "bundle": whole, "index": told}
    return {
        **{
            f"{FOLDER}/{name}.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
            for name, schema in made.items()
        },
        "clients/typescript/src/generated.ts": typescript(whole, told),
    }
