"""The client bridge: contexts, ideas, minds, modules, the loop and replay (DESIGN 3)."""
