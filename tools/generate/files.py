"""Lists the files made from the schemas, by their paths in the repository."""

from __future__ import annotations

import json
from collections.abc import Iterable

from kbproc.methods.calls.method import Method
from kbproc.methods.calls.schemas import all_schemas
from tools.generate.bundle import bundle, index
from tools.generate.typescript import typescript

FOLDER = "schemas/v1"


def files(methods: Iterable[Method]) -> dict[str, str]:
    """Returns path → text."""
    listed = [*methods]
    schemas = all_schemas(listed)
    schema_bundle, schema_index = bundle(schemas), index(listed)
    documents = {**schemas, "bundle": schema_bundle, "index": schema_index}
    return {
        **{
            f"{FOLDER}/{name}.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
            for name, schema in documents.items()
        },
        "clients/typescript/src/generated.ts": typescript(schema_bundle, schema_index),
    }
