"""The log as it is read from outside: events.read, events.verify, events.subscribe."""

from __future__ import annotations
