"""The server: addresses, TLS, Unix sockets, reloading, and the end of a thread."""

from __future__ import annotations

import datetime as dt
import http.client
import ipaddress
import json
import logging
import socket
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from embedwatch.core.errors import InputError, UsageError
from embedwatch.daemon.config_file import load_config
from embedwatch.daemon.listening import listen
from embedwatch.daemon.live import Live
from embedwatch.daemon.logs import PERIOD, REPEATS, LineFormatter, RateLimit
from tests.daemon.serving import ask, npy, send, serving

TOKEN, OTHER = "t" * 32, "o" * 32


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate for localhost that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = dt.datetime.now(dt.timezone.utc)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = folder / f"{name}.crt", folder / f"{name}.key"
    cert_file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert_file, key_file


def test_tls_and_a_renewed_certificate(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "one")
    with serving(tmp_path, tls={"cert_file": str(cert), "key_file": str(key)}) as served:
        assert served.server.urls == [f"https://127.0.0.1:{served.port}"]
        trust = ssl.create_default_context(cafile=str(cert))
        assert ask(served.port, "/-/ready", tls=trust).status == 200
        new_cert, new_key = certificate(tmp_path, "two")
        new_cert.replace(cert)
        new_key.replace(key)
        served.live.reload()
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(served.port, "/-/ready", tls=trust)
        renewed = ssl.create_default_context(cafile=str(cert))
        assert ask(served.port, "/-/ready", tls=renewed).status == 200
        key.write_text("damaged")
        with pytest.raises(UsageError, match="PEM files that belong together"):
            served.live.reload()
        assert ask(served.port, "/-/ready", tls=renewed).status == 200


def test_clients_may_need_a_certificate(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path, "server")
    client_cert, client_key = certificate(tmp_path, "client")
    tls = {"cert_file": str(cert), "key_file": str(key), "client_ca_file": str(client_cert)}
    with serving(tmp_path, tls=tls) as served:
        trust = ssl.create_default_context(cafile=str(cert))
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            ask(served.port, "/-/ready", tls=trust)
        trust.load_cert_chain(client_cert, client_key)
        assert ask(served.port, "/-/ready", tls=trust).status == 200


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(str(self._path))


def test_a_unix_socket_beside_a_port(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with serving(tmp_path, listen=["127.0.0.1:0", f"unix:{path}"]) as served:
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        connection = UnixConnection(path)
        connection.request("POST", "/api/v1/ingest/m/p", npy(9), {"Content-Type": "application/x-npy"})
        assert json.loads(connection.getresponse().read()) == {"accepted": 9}
        connection.close()
        assert ask(served.port, "/-/ready").status == 200
        with pytest.raises(UsageError, match="another process listens there"):
            listen([f"unix:{path}"])
    assert not path.exists()


def test_what_a_dead_process_left_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    (listener,) = listen([f"unix:{path}"])
    listener.close()
    path.write_text("no socket")
    with pytest.raises(UsageError, match="must be a path where nothing else is"):
        listen([f"unix:{path}"])
    assert path.read_text() == "no socket"


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("unix:{folder}/none/x.sock", r"a socket in a folder that exists, got .*; make {folder}/none"),
        ("unix:{folder}", r"a path where nothing else is, got .*; choose another"),
        ("192.0.2.1:0", r"an address of this machine, got 192.0.2.1:0: .*; choose one that it has"),
        ("no.such.host.invalid:0", r"a host that is known, got .*; correct its name"),
    ],
)
def test_an_address_that_cannot_be_had_says_why(tmp_path: Path, address: str, told: str) -> None:
    with pytest.raises(UsageError, match=f"^`web.listen` must be {told.format(folder=tmp_path)}"):
        listen([address.format(folder=tmp_path)])


def test_a_port_in_use_frees_the_others(tmp_path: Path) -> None:
    (taken,) = listen(["127.0.0.1:0"])
    path = tmp_path / "s"
    with pytest.raises(UsageError, match=r"`web.listen` must be free, got 127.0.0.1:\d+: Address already in use"):
        listen([f"unix:{path}", str(taken.address)])
    assert not path.exists()
    taken.close()


def test_a_state_in_use_ends_the_start(tmp_path: Path) -> None:
    with serving(tmp_path), pytest.raises(UsageError), serving(tmp_path):
        pass


def test_what_was_sent_is_there_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert send(served.port, npy(123)).status == 202
    with serving(tmp_path) as served:
        served.heart.close_windows()
        assert 'embedwatch_window_rows{model="m",place="p",segment="all"} 123.0' in (
            ask(served.port, "/metrics").body.decode()
        )


def make_live(path: Path) -> Live:
    return Live(lambda: load_config(path, environment={}))


def test_reloading_takes_over_what_it_can_and_keeps_the_old_on_error(tmp_path: Path) -> None:
    tokens, file = tmp_path / "tokens", tmp_path / "e.yaml"
    tokens.write_text(TOKEN)
    file.write_text(f"web: {{listen: [':9477'], max_rows: 5, auth: {{token_file: {tokens}}}}}\nlog: {{level: error}}")
    live = make_live(file)
    tokens.write_text(OTHER)
    file.write_text(file.read_text().replace("max_rows: 5", "max_rows: 6"))
    live.reload()
    assert live.config.web.max_rows == 6
    assert live.gate.admits(f"Bearer {OTHER}")
    assert not live.gate.admits(f"Bearer {TOKEN}")
    right = file.read_text()
    for wrong in ("web: [", right.replace("max_rows", "max_row"), right.replace("tokens", "none"), "web: {}"):
        file.write_text(wrong)
        with pytest.raises(UsageError):
            live.reload()
        assert live.config.web.max_rows == 6
        assert live.gate.admits(f"Bearer {OTHER}")
        assert not live.metrics.reload_successful
    file.write_text(right)
    live.reload()
    assert live.metrics.reload_successful


def record(message: str = "m", **fields: Any) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": message, "levelname": "INFO", "created": 0, **fields})


def test_a_line_is_one_line_and_quotes_no_data() -> None:
    def caught(error: Exception) -> Any:
        try:
            raise error
        except Exception as found:  # noqa: BLE001
            return (type(found), found, found.__traceback__)

    secret = record(exc_info=caught(ValueError("[0.25, 0.5] secret text")))
    ours = record("a\nb=c \x1b[0m", place="x y", exc_info=caught(InputError("`rows` must be 2-D")))
    for form in ("logfmt", "json"):
        line = LineFormatter(form).format(secret)  # type: ignore[arg-type]
        assert "secret" not in line
        assert "ValueError" in line
        assert "test_server.py" in line
        line = LineFormatter(form).format(ours)  # type: ignore[arg-type]
        assert "\n" not in line
        assert "\x1b" not in line
        assert "must be 2-D" in line
    assert json.loads(LineFormatter("json").format(ours))["place"] == "x y"


def test_what_repeats_is_counted_instead() -> None:
    now = [0.0]
    limit = RateLimit(lambda: now[0])
    assert [limit.filter(record()) for _ in range(REPEATS + 5)].count(True) == REPEATS
    now[0] = PERIOD
    last = record()
    assert limit.filter(last)
    assert vars(last)["left_out"] == 5
