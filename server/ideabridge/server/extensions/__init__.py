"""Extensions to the protocol: views of runs (Apps), long runs as tasks, and published ideas as
skills.
"""
