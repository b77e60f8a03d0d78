"""`kbproc mcp` beside the official tools: conformance, tokens, starts. They come from npm."""
