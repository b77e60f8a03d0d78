"""Compares `kbproc mcp` with the official tools of npm: conformance, tokens, starts."""
