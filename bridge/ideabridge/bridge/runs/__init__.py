"""The runs of a bridge: how they begin, are driven and journaled, ask people, fork and recover."""
