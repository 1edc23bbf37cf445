"""Builders of containers that a test can use: Docker or Podman with a working engine, or
Buildah as root.
"""

from __future__ import annotations

import functools
import json
import os
import secrets
import shutil
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .proxies import free_port

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = ROOT / "packaging" / "Dockerfile"
BASE = "python:3.13-slim"


def command(*words: str, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a command, whatever its outcome."""
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=seconds, cwd=ROOT
    )


def output(*words: str, seconds: float = 60) -> str:
    """The output of a command that works."""
    done = command(*words, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@functools.cache
def builder() -> tuple[str, str]:
    """(builder, "") of the first builder that can run a container of the base image;
    else ("", why not).
    """
    faults: list[str] = []
    for name in ("docker", "podman", "buildah"):
        if shutil.which(name) is None:
            faults.append(f"{name} is not installed")
            continue

        try:
            if name == "buildah":
                tried = command("buildah", "from", "--name", f"probe-{secrets.token_hex(4)}", BASE)
                if tried.returncode == 0:
                    command("buildah", "rm", tried.stdout.strip())
            else:
                tried = command(name, "run", "--rm", BASE, "python", "--version")
        except subprocess.TimeoutExpired:
            faults.append(f"{name} did not answer within a minute")
            continue

        if tried.returncode == 0:
            return name, ""
        faults.append(f"{name}: {(tried.stderr.strip().splitlines() or ['it failed'])[-1]}")

    return "", "; ".join(faults)


class Container:
    """A container of an image that was built from packaging/Dockerfile.

    Attributes:
        port: the port of this machine at which it serves.
    """

    def __init__(self, builder: str, name: str, port: int) -> None:
        self._builder = builder
        self._name = name
        self.port = port

    def run(self, *words: str) -> str:
        """The output of a command in the running container."""
        if self._builder == "buildah":
            return output("buildah", "run", "--isolation", "chroot", self._name, "--", *words)
        return output(self._builder, "exec", self._name, *words)


def image_settings(builder: str, image: str) -> dict[str, Any]:
    """What an image says about how it runs: `User`, `Entrypoint`, `Cmd` and more."""
    if builder == "buildah":
        return json.loads(output("buildah", "inspect", "--type", "image", image))["Docker"][
            "config"
        ]
    return json.loads(output(builder, "image", "inspect", image))[0]["Config"]


@contextmanager
def image() -> Generator[str]:
    """Build the image; it is deleted at the end."""
    name, _ = builder()
    tag = f"ideabridge-test-{secrets.token_hex(4)}"
    if name == "docker":
        words = [name, "build"]
    else:
        words = [name, "build", "--format", "docker"]

    if name == "buildah":
        words += ["--isolation", "chroot"]

    output(*words, "-f", str(DOCKERFILE), "-t", tag, ".", seconds=900)
    try:
        yield tag
    finally:
        output(name, "rmi", tag)


@contextmanager
def container(tag: str, first: Sequence[str]) -> Generator[tuple[Container, str]]:
    """A container that serves, on a volume in which a command has run before; gives it, and
    what that said.
    """
    name, _ = builder()
    port = free_port()
    settings = image_settings(name, tag)
    if name == "buildah":
        made = output("buildah", "from", "--pull-never", tag)
        one = Container(name, made, port)
        said = one.run(*settings["Entrypoint"], *first)
        # The container uses the network of this machine.
        words = [
            one.replace(":8787", f":{port}") for one in settings["Entrypoint"] + settings["Cmd"]
        ]
        process = subprocess.Popen(
            ["buildah", "run", "--isolation", "chroot", made, "--", *words],
            stderr=subprocess.DEVNULL,
        )
        try:
            yield one, said
        finally:
            pid = one.run("python", "-c", _FIND_SERVER).strip()
            os.kill(int(pid), 15)
            process.wait(timeout=30)
            output("buildah", "rm", made)

        return

    volume = f"ideabridge-test-{secrets.token_hex(4)}"
    said = output(name, "run", "--rm", "-v", f"{volume}:/data", tag, *first)
    made = output(name, "run", "-d", "-v", f"{volume}:/data", "-p", f"127.0.0.1:{port}:8787", tag)
    try:
        yield Container(name, made, port), said
        output(name, "stop", "-t", "5", made)
        assert output(name, "inspect", "--format", "{{.State.ExitCode}}", made) == "0"
    finally:
        output(name, "rm", "-f", made)
        output(name, "volume", "rm", volume)


_FIND_SERVER = """
from pathlib import Path
for one in Path("/proc").iterdir():
    try:
        words = (one / "cmdline").read_bytes().split(b"\\0") if one.name.isdecimal() else []
    except OSError:
        continue
    if b"--http" in words and words[0].startswith(b"/opt/ideabridge/bin/"):
        print(one.name)
"""
