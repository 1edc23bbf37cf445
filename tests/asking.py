"""A configuration under which the tools of a program ask as those of files and modules do."""

from typing import Final

from ideabridge.bridge import ApprovalRules, Configuration

ASKS: Final = Configuration(approval=ApprovalRules(default="read_only"))
