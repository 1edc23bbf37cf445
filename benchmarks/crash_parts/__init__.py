"""Parts of the crash test (`benchmarks/crash.py`)."""
