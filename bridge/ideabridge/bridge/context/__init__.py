"""What a mind is asked and what it answers: messages, references, state, Requests and Solutions."""
