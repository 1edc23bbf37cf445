"""preloaded_start.py SOCKET SCRIPT ARGUMENTS...: run a script in a process forked for it, and end as it ends.

Imports as little as it can: this is what remains of the cost of a start.
"""

import marshal
import os
import signal
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    asked = marshal.dumps((sys.argv[2:], os.getcwd(), dict(os.environ), os.getpid()))  # noqa: PTH109 - pathlib costs 10 ms
    socket.send_fds(connection, [len(asked).to_bytes(4)], [0, 1, 2])
    connection.sendall(asked)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: connection.send(bytes([number])))
    code = int.from_bytes(connection.recv(2) or b"\0\1", signed=True)
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
