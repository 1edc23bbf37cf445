"""preloaded_start.py SOCKET SCRIPT ARGUMENTS...: run a script in a process forked for it, and
end as it ends.

Imports as little as it can: this is what remains of the cost of a start. `os`, `socket` and
`signal` import much more, which doubles it; the modules beneath them are part of the interpreter.
"""

import _socket
import marshal
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

connection = _socket.socket(_socket.AF_UNIX)
connection.connect(sys.argv[1])
asked = marshal.dumps((sys.argv[2:], posix.getcwd(), posix.environ, posix.getpid()))
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
connection.sendmsg([len(asked).to_bytes(4)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
connection.sendall(asked)
for number in (_signal.SIGTERM, _signal.SIGINT, _signal.SIGHUP):
    _signal.signal(number, lambda number, _: connection.send(bytes([number])))
code = int.from_bytes(connection.recv(2) or b"\0\1", signed=True)
connection.close()
if code < 0:
    if -code != _signal.SIGKILL:
        _signal.signal(-code, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -code)
posix._exit(code)  # pyright: ignore[reportPrivateUsage]
