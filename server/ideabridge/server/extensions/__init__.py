"""Extensions to the protocol, which offer views of runs (Apps), long runs as tasks, and published
ideas as skills.
"""
