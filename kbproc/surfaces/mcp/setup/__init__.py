"""Changes the settings of programs that start MCP servers."""
