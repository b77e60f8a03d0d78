"""A start makes no look for garbage; a process that goes on looks."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import gc
from kbproc.base.garbage import look_for_garbage, wait_with_garbage

class Node: pass

def look():
    'Makes cycles of garbage until Python looks; returns how many objects that took.'
    looks = []
    gc.callbacks.append(lambda phase, info: looks.append(phase))
    made = 0
    while not looks:
        node = Node(); node.itself = node; made += 1
    gc.callbacks.clear()
    return made

wait_with_garbage()
gc.collect()
a_start = [Node() for _ in range(60_000)]
print(gc.get_count()[0] >= 60_000)
look_for_garbage()
print(gc.get_freeze_count() > 60_000, look() <= 25_000)
before = gc.get_freeze_count()
look_for_garbage()
print(gc.get_freeze_count() == before)
"""


def test_a_start_passes_without_a_look() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True"] * 4
