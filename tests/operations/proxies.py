"""The proxies of docs/team.md, as processes of their own with the files in packaging/ and a
certificate made here.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PACKAGING = Path(__file__).parent.parent.parent / "packaging"
NAME = "tools.example.com"


def program(name: str) -> str | None:
    """The path of a program of the system; Debian keeps some out of a user's search path."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def certificate(folder: Path) -> tuple[Path, Path]:
    """The files of a new certificate for `NAME` and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def changed(text: str, *pairs: tuple[str, str]) -> str:
    """A text in which each first text of a pair, which must be in it, is replaced."""
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def nginx(folder: Path, port: int, upstream: str) -> list[str]:
    """The command that runs nginx with packaging/nginx.conf, as any user."""
    pem, key = certificate(folder)
    site = changed(
        (PACKAGING / "nginx.conf").read_text(encoding="utf-8"),
        ("server 127.0.0.1:8787;", f"server {upstream};"),
        ("    listen 80;\n    listen [::]:80;\n", f"    listen 127.0.0.1:{free_port()};\n"),
        (
            "    listen 443 ssl http2;\n    listen [::]:443 ssl http2;\n",
            f"    listen 127.0.0.1:{port} ssl http2;\n",
        ),
        ("/etc/letsencrypt/live/tools.example.com/fullchain.pem", str(pem)),
        ("/etc/letsencrypt/live/tools.example.com/privkey.pem", str(key)),
    )
    (folder / "site.conf").write_text(site, encoding="utf-8")
    places = "".join(
        f"    {one}_temp_path {folder}/{one};\n"
        for one in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off;\nmaster_process off;\npid {folder}/pid;\nerror_log stderr;\nevents {{}}\n"
        "http {\n    access_log off;\n    gzip on;\n    "
        f"gzip_types *;\n{places}    include {folder}/site.conf;\n}}\n",
        encoding="utf-8",
    )
    found = program("nginx")
    assert found is not None
    command = [found, "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
    checked = subprocess.run([*command, "-t"], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    assert "[warn]" not in checked.stderr, checked.stderr
    return command


def caddyfile(name: str) -> str:
    """The text of a file in packaging/, for the version of Caddy that is installed."""
    found = program("caddy")
    assert found is not None
    printed = subprocess.run([found, "version"], capture_output=True, text=True, check=True).stdout
    text = (PACKAGING / name).read_text(encoding="utf-8")
    number = re.match(r"v?(\d+)\.(\d+)", printed)
    if number is not None and tuple(map(int, number.groups())) < (2, 7):
        # packaging/Caddyfile says this about older versions.
        text = changed(text, ("\t\trequest_buffers 1MiB\n", "\t\tbuffer_requests\n"))

    return text


def caddy(folder: Path, port: int, upstream: str) -> list[str]:
    """The command that runs Caddy with packaging/Caddyfile."""
    pem, key = certificate(folder)
    site = changed(
        caddyfile("Caddyfile"),
        ("127.0.0.1:8787 {", f"{upstream} {{"),
        ("\ntools.example.com {\n", f"\nhttps://tools.example.com:{port} {{\n\ttls {pem} {key}\n"),
    )
    file = folder / "Caddyfile"
    # Turn off the port for plain HTTP, from which Caddy redirects to HTTPS, because it needs an
    # administrator.
    file.write_text(
        f"{{\n\tadmin off\n\tauto_https disable_redirects\n}}\n{site}", encoding="utf-8"
    )
    found = program("caddy")
    assert found is not None
    formatted = subprocess.run(
        [found, "fmt", str(PACKAGING / "Caddyfile")], capture_output=True, text=True, check=True
    )
    assert formatted.stdout == (PACKAGING / "Caddyfile").read_text(encoding="utf-8")
    return [found, "run", "--config", str(file), "--adapter", "caddyfile"]


@contextmanager
def proxy(kind: str, folder: Path, url: str) -> Generator[tuple[int, ssl.SSLContext]]:
    """A proxy in front of the server with this URL; gives its port on this machine, and whom
    a client trusts.
    """
    folder.mkdir()
    port = free_port()
    upstream = url.removeprefix("http://").partition("/")[0]
    command = {"nginx": nginx, "caddy": caddy}[kind](folder, port, upstream)
    environment = {
        **os.environ,
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    with waiting_for(command, port, folder / "log", environment):
        yield port, ssl.create_default_context(cafile=str(folder / "certificate.pem"))


@contextmanager
def waiting_for(
    command: list[str], port: int, log: Path, environment: dict[str, str]
) -> Generator[None]:
    """A process that listens on a port of this machine, and prints into a file."""
    with log.open("wb") as printed:
        process = subprocess.Popen(command, stdout=printed, stderr=printed, env=environment)
    try:
        while True:
            assert process.poll() is None, log.read_text()
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
