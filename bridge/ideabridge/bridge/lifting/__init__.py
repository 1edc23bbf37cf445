"""Turn runs into plans that work with other input; `lift.py` explains how."""
