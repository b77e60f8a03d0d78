"""Manifests that a package of npm judges: Claude Code's plugin, and the bundle.

`make harnesses` installs what they need, and runs them.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest

from tests.kit.harnesses import INSTALL, INSTALLED, PROGRAMS
from tests.kit.start import REPO

SCHEMAS = INSTALLED / "node_modules" / "@anthropic-ai" / "mcpb" / "schemas"
pytestmark = pytest.mark.skipif(not SCHEMAS.is_dir(), reason=f"`{INSTALL}` installs the schemas")


def test_the_bundle_keeps_to_its_schema() -> None:
    manifest = json.loads((REPO / "packaging" / "mcpb" / "manifest.json").read_text())
    name = f"mcpb-manifest-v{manifest['manifest_version']}.schema.json"
    judge = jsonschema.Draft7Validator(json.loads((SCHEMAS / name).read_text()))
    assert [error.message for error in judge.iter_errors(manifest)] == []
    assert list(judge.iter_errors({**manifest, "servers": {}})), "it refuses other members"


@pytest.mark.parametrize("place", [".", "plugin"])
def test_claude_code_takes_the_marketplace_and_the_plugin(tmp_path: Path, place: str) -> None:
    command = [PROGRAMS / "claude", "plugin", "validate", "--strict", "--json", REPO / place]
    env = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
