"""Programs of users, which the type checker sees from outside the source tree."""
