"""How requests arrive: JSON-RPC over lines, other processes, MCP clients, the shell."""
