"""Extensions of the protocol: views of runs (Apps), long runs as tasks, published
ideas as skills.
"""
