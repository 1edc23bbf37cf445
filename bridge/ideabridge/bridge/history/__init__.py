"""Import the conversations in hosts' logs on this machine as runs, which can be published."""
