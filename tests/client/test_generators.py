"""Code generated from the bundle compiles, and ajv accepts every line of the goldens.

The tests fetch hundreds of megabytes from npm and PyPI, and so run at full count only.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.kit.golden import told
from tests.kit.patience import LONG
from tests.kit.start import REPO

pytestmark = pytest.mark.skipif(not LONG, reason="at full count only")

V1 = REPO / "schemas" / "v1"
BUNDLE: dict[str, Any] = json.loads((V1 / "bundle.json").read_text())
INDEX: dict[str, Any] = json.loads((V1 / "index.json").read_text())
PACKAGES = ("json-schema-to-typescript@16.0.0", "quicktype@26.0.0", "ajv@8.20.0")
COMPILER = ("typescript@7.0.2", "@types/node@20.19.43", "ajv-formats@3.0.1")
PYTHON = ("datamodel-code-generator==0.89.0", "pydantic==2.14.3", "mypy==2.4.1")
STRICT = ("--noEmit", "--strict", "--types", "node", "--target", "es2022", "--module", "nodenext")


def run(*argv: str | Path, cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Makes a folder with the bundle and the packages from npm."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    (folder / "bundle.json").write_text(json.dumps(BUNDLE))
    run("npm", "install", "--silent", "--no-audit", "--no-fund", *PACKAGES, *COMPILER, cwd=folder)
    return folder


def exported(text: str) -> set[str]:
    """Returns the types' names in lower case, because one generator writes KBGetData."""
    names = re.findall(r"^(?:export )?(?:interface|type|enum|class) (\w+)", text, re.M)
    return {name.lower() for name in names}


def missing(text: str) -> set[str]:
    return {name for name in BUNDLE["$defs"] if name.lower() not in exported(text)}


def test_json_schema_to_typescript(node: Path) -> None:
    tool = "node_modules/.bin/json2ts"
    run(tool, "--unreachableDefinitions", "-i", "bundle.json", "-o", "json2ts.ts", cwd=node)
    run("node_modules/.bin/tsc", *STRICT, "json2ts.ts", cwd=node)
    assert missing((node / "json2ts.ts").read_text()) <= {
        "EventsSubscribeItem"
    }  # equals ShownRecord
    (node / "used.ts").write_text(
        'import type { Request, StreamEvent } from "./json2ts.js";\n'
        'const asked = { jsonrpc: "2.0", id: 1 } as const;\n'
        'const one: Request = { ...asked, method: "search", params: { query: "a" } };\n'
        'const delta = (event: StreamEvent) => (event.type === "answer" ? event.delta : one.id);\n'
        "// @ts-expect-error: no such method\n"
        'const other: Request = { ...asked, method: "serach" };\n'
        "export { delta, other };\n"
    )
    run("node_modules/.bin/tsc", *STRICT, "used.ts", cwd=node)


def test_quicktype(node: Path) -> None:
    arguments = ("--src-lang", "schema", "--lang", "typescript", "--src", "bundle.json#/$defs/")
    run("node_modules/.bin/quicktype", *arguments, "-o", "quicktype.ts", cwd=node)
    run("node_modules/.bin/tsc", *STRICT, "quicktype.ts", cwd=node)
    missing_names = missing((node / "quicktype.ts").read_text())
    # Lists, and types with the same members under one name.
    assert len(missing_names) <= len(BUNDLE["$defs"]) // 25, missing_names


def test_datamodel_code_generator(tmp_path: Path) -> None:
    run(sys.executable, "-m", "venv", "venv", cwd=tmp_path)
    run("venv/bin/pip", "install", "-q", *PYTHON, cwd=tmp_path)
    (tmp_path / "bundle.json").write_text(json.dumps(BUNDLE))
    run(
        *("venv/bin/datamodel-codegen", "--input", "bundle.json"),
        *("--input-file-type", "jsonschema", "--output", "models.py"),
        *("--output-model-type", "pydantic_v2.BaseModel", "--target-python-version", "3.11"),
        *("--use-annotated", "--enum-field-as-literal", "all"),
        cwd=tmp_path,
    )
    run("venv/bin/mypy", "--strict", "models.py", cwd=tmp_path)
    assert missing((tmp_path / "models.py").read_text()) == set()
    (tmp_path / "lines.json").write_text(json.dumps([value for _, value in typed_lines()]))
    (tmp_path / "types.json").write_text(json.dumps([type for type, _ in typed_lines()]))
    output = run(
        "venv/bin/python",
        "-c",
        "import json, models\n"
        "lines, types = json.load(open('lines.json')), json.load(open('types.json'))\n"
        "for line, type in zip(lines, types): getattr(models, type).model_validate(line)\n"
        "print(len(lines))\n",
        cwd=tmp_path,
    )
    assert int(output) > 1000


def typed_lines() -> Iterator[tuple[str, Any]]:
    """Returns the server's lines in the goldens with their types, by the index.

    Lean answers are left out, because they have types of their own.
    """
    for path in sorted((REPO / "golden" / "test_golden").glob("test_over_pipes*")):
        for line in told(path.read_text()):
            message = line.message
            if message.get("result", {}).get("meta", {}).get("lean"):
                continue
            if "error" in message:
                yield INDEX["error"]["type"], message["error"]
            elif "result" in message:
                yield INDEX["methods"][line.method]["result"]["type"], message["result"]
            else:
                event = message["params"]
                group = "stream" if "request_id" in event else "process"
                yield INDEX["events"][group][event["type"]]["type"], event


AJV = """
import { readFileSync } from "node:fs";
import { Ajv2020 } from "ajv/dist/2020.js";
import formats from "ajv-formats";
const bundle = JSON.parse(readFileSync("bundle.json"));
const ajv = new Ajv2020({ strict: true, strictTypes: false, strictTuples: false });
formats.default(ajv);
ajv.addKeyword("discriminator");
ajv.addSchema(bundle, "bundle");
let count = 0;
for (const [type, value] of JSON.parse(readFileSync("lines.json"))) {
  const validate = ajv.getSchema(`bundle#/$defs/${type}`);
  if (!validate(value)) throw new Error(`${type}: ${JSON.stringify(validate.errors)}`);
  count++;
}
const event = { type: "answer", request_id: 1, index: 0, message_id: 1 };
if (ajv.getSchema("bundle#/$defs/StreamEvent")(event)) throw new Error("it lacks a cursor");
for (const name of JSON.parse(readFileSync("files.json"))) ajv.compile(name);
console.log(count);
"""


def test_ajv_and_jsonschema_take_every_line(node: Path) -> None:
    lines = list(typed_lines())
    (node / "lines.json").write_text(json.dumps(lines))
    files = [path for path in V1.glob("*.json") if path.stem not in {"index", "bundle"}]
    (node / "files.json").write_text(json.dumps([json.loads(path.read_text()) for path in files]))
    (node / "validate.js").write_text(AJV)
    assert int(run("node", "validate.js", cwd=node)) == len(lines) > 1000
    defs = BUNDLE["$defs"]
    validators = {
        type: jsonschema.Draft202012Validator({"$ref": f"#/$defs/{type}", "$defs": defs})
        for type in {type for type, _ in lines}
    }
    for type, value in lines:
        validators[type].validate(value)
