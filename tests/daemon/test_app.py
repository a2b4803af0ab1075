"""What is answered over HTTP: pages, the API, bodies of all sorts, limits, and slow clients. Over real sockets."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import schemathesis
import zstandard
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from embedwatch.core.sink import Sink
from embedwatch.core.snapshot import Provenance, Snapshot, Space
from embedwatch.daemon.bodies import ROW_TYPES
from embedwatch.parcels import Parcel, parcel_of_snapshot
from tests.daemon.serving import Reply, Served, ask, npy, raw, send, serving, until

PARCEL = "application/vnd.embedwatch.parcel"
TOKEN = "t" * 32


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("app"), max_body="1MiB", max_rows=1000, timeout="3s") as found:
        yield found


@pytest.fixture(scope="module")
def port(served: Served) -> int:
    return served.port


def test_the_pages(port: int) -> None:
    assert b"/metrics" in ask(port, "/").body
    assert ask(port, "/-/healthy").body == b"embedwatch is healthy.\n"
    assert ask(port, "/-/ready").body == b"embedwatch is ready.\n"


def test_every_answer_is_safe_and_says_nothing_about_the_server(port: int) -> None:
    for path in ("/", "/metrics", "/nothing", "/api/v1/status"):
        headers = ask(port, path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_unknown_paths_and_methods(port: int) -> None:
    assert ask(port, "/nothing").error == "not found"
    refused = ask(port, "/api/v1/status", "DELETE")
    assert (refused.status, refused.error, refused.headers["allow"]) == (405, "method not allowed", "GET")
    assert ask(port, "/api/v1/parcels").status == 405
    head = ask(port, "/metrics", "HEAD")
    assert (head.status, head.body) == (200, b"")
    assert int(head.headers["content-length"]) > 100


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("form", ["text", "openmetrics"])
def test_metrics_are_one_exposition_in_every_form(port: int, form: str, packed: bool) -> None:
    ask(port, "/-/ready")
    accept = "application/openmetrics-text;version=1.0.0" if form == "openmetrics" else "text/plain;version=0.0.4"
    reply = ask(port, "/metrics", Accept=accept, Accept_Encoding="gzip" if packed else "identity")
    assert reply.headers.get("content-encoding") == ("gzip" if packed else None)
    text = (gzip.decompress(reply.body) if packed else reply.body).decode()
    parse = openmetrics if form == "openmetrics" else text_string_to_metric_families
    families = {family.name: family for family in parse(text)}
    assert {"embedwatch_build_info", "embedwatch_config_last_reload_successful"} <= set(families)
    assert text.count("# TYPE embedwatch_build_info") == 1
    requests = families["embedwatch_http_requests"]
    counted = {(s.labels["handler"], s.labels["method"], s.labels["code"]): s.value for s in requests.samples}
    assert counted["/-/ready", "GET", "200"] >= 1


def test_labels_of_requests_are_bounded(port: int) -> None:
    for number in range(20):
        ask(port, f"/nothing/{number}")
        ask(port, f"/api/v1/spaces/m{number}/p")
        ask(port, "/", f"VERB{number}")
    text = ask(port, "/metrics").body.decode()
    assert "/nothing/" not in text
    assert "VERB" not in text
    assert 'handler="/api/v1/spaces/{model:path}/{place}",method="GET",code="404"' in text.replace(", ", ",") or (
        'code="404",handler="/api/v1/spaces/{model:path}/{place}"' in text
    )


@pytest.mark.parametrize("encoding", ["identity", "gzip", "zstd"])
def test_rows_are_taken_packed_or_not(served: Served, encoding: str) -> None:
    pack: Any = {"identity": bytes, "gzip": gzip.compress, "zstd": zstandard.ZstdCompressor().compress}[encoding]
    reply = send(served.port, pack(npy(70)), f"/api/v1/ingest/packed/{encoding}?role=pooled", Content_Encoding=encoding)
    assert (reply.status, reply.json) == (202, {"accepted": 70})
    served.heart.close_windows()
    found = ask(served.port, f"/api/v1/spaces/packed/{encoding}")
    assert found.status == 200, found.body
    assert f'embedwatch_window_rows{{model="packed",place="{encoding}",segment="all"}} 70.0' in (
        ask(served.port, "/metrics").body.decode()
    )


def test_a_model_may_have_a_slash_and_rows_a_segment(served: Served) -> None:
    body = json.dumps({"vectors": [[1, 2], [2, 1], [0.5, None]], "segment": "de"})
    assert send(served.port, body, "/api/v1/ingest/BAAI/bge/pooled", "application/json; charset=utf-8").status == 202
    served.heart.close_windows()
    assert ask(served.port, "/api/v1/spaces/BAAI/bge/pooled?segment=de").status == 200
    assert ask(served.port, "/api/v1/spaces/BAAI/bge/pooled").status == 404
    assert any(space["space"]["model"] == "BAAI/bge" for space in ask(served.port, "/api/v1/spaces").json)


def test_what_is_repeated_counts_once(served: Served) -> None:
    path = "/api/v1/ingest/again/p?sender=host-1&number=7"
    for _ in range(3):
        assert send(served.port, npy(30), path).status == 202
    served.heart.close_windows()
    assert 'embedwatch_window_rows{model="again",place="p",segment="all"} 30.0' in (
        ask(served.port, "/metrics").body.decode()
    )
    assert send(served.port, npy(), "/api/v1/ingest/again/p?sender=host-1").status == 422


def test_a_parcel_is_taken(served: Served) -> None:
    snapshot = Parcel(Space("par", "cel"), "", "snapshot", 0, None, "s", 1, 1.7e9, payload=b"{}")
    assert send(served.port, snapshot.to_bytes(), "/api/v1/parcels", PARCEL).status == 400  # its payload is none
    judged = Snapshot(Space("par", "cel"), (), Provenance(1.7e9, 40, 8, role="pooled"))
    parcel = parcel_of_snapshot(judged, sender="s", number=2)
    reply = send(served.port, parcel.to_bytes(), "/api/v1/parcels", PARCEL)
    assert (reply.status, reply.json) == (202, {"accepted": 40})


HUGE = io.BytesIO()
np.lib.format.write_array_header_1_0(HUGE, {"descr": "<f4", "fortran_order": False, "shape": (10**9, 4096)})
OBJECTS = io.BytesIO()
np.save(OBJECTS, np.array([[{1}]]), allow_pickle=True)


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", "application/x-npy", 400),
        (HUGE.getvalue() + b"x" * 64, "application/x-npy", 400),
        (OBJECTS.getvalue(), "application/x-npy", 400),
        (pickle.dumps([[1.0]]), "application/x-npy", 400),
        (npy()[:-1], "application/x-npy", 400),
        (npy(1001), "application/x-npy", 413),
        (b"[" * 100_000, "application/json", 400),
        (b'{"vectors": [[1], [2, 3]]}', "application/json", 400),
        (b"\xff\xff", "application/json", 400),
        (b"ARROW1\0\0", "application/vnd.apache.arrow.file", 400),
        (npy(), "text/plain", 415),
        (npy(), "", 415),
        (npy(), "application/x-python-pickle", 415),
    ],
)
def test_hostile_bodies_get_one_line(port: int, body: bytes, kind: str, status: int) -> None:
    reply = send(port, body, kind=kind)
    assert reply.status == status
    assert "unsafe" not in reply.error


def test_bodies_are_counted_as_they_come(port: int) -> None:
    assert send(port, npy(1000, 500)).status == 413
    chunks = (b"x" * 65_536 for _ in range(80))
    assert send(port, chunks).status == 413
    assert send(port, gzip.compress(bytes(1 << 28)), Content_Encoding="gzip").status == 413
    assert send(port, npy(), Content_Encoding="br").status == 415
    assert send(port, npy(), Content_Encoding="gzip").status == 400
    assert ask(port, "/-/healthy").status == 200


def test_a_claim_of_terabytes_is_refused_at_once(port: int) -> None:
    with raw(port) as connection:
        connection.sendall(
            b"POST /api/v1/parcels HTTP/1.1\r\nHost: x\r\nContent-Type: application/vnd.embedwatch.parcel\r\n"
            b"Content-Length: 99999999999999999999\r\n\r\n"
        )
        assert connection.recv(65_536).startswith((b"HTTP/1.1 413", b"HTTP/1.1 400"))


@pytest.mark.parametrize(
    "path", ["/api/v1/ingest//p", "/api/v1/ingest/m/" + "p" * 300, "/api/v1/ingest/m/p?role=training"]
)
def test_names_that_do_not_fit(port: int, path: str) -> None:
    reply = send(port, npy(), path)
    assert reply.status == 422
    assert reply.error


def test_another_dimension_of_the_same_space_is_refused(port: int) -> None:
    assert send(port, npy(20, 8), "/api/v1/ingest/fixed/p").status == 202
    reply = send(port, npy(20, 9), "/api/v1/ingest/fixed/p")
    assert (reply.status, "8 dimensions" in reply.error) == (422, True)


def test_a_page_of_another_site_cannot_send(port: int) -> None:
    assert send(port, npy(), Origin="https://example.org").status == 403
    assert send(port, npy(), Origin=f"http://127.0.0.1:{port}").status == 202


def test_a_client_that_drips_is_cut_and_told(served: Served) -> None:
    """One that sends half a head is cut; one that sends half a body is told, or cut."""
    with raw(served.port) as head, raw(served.port) as body:
        head.sendall(b"GET /metrics HTTP/1.1\r\nHost:")
        body.sendall(
            b"POST /api/v1/ingest/m/p HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-npy\r\n"
            b"Content-Length: 1000\r\n\r\nabc"
        )
        assert ask(served.port, "/metrics").status == 200
        assert head.recv(100) == b""
        assert body.recv(65_536)[:12] in (b"", b"HTTP/1.1 408")


def test_too_many_at_once_are_told_when_to_come_again(tmp_path: Path) -> None:
    with serving(tmp_path, max_ingesting=1, max_body="1MiB") as served:

        def beside_a_slow_one() -> Reply:
            with raw(served.port) as slow:
                slow.sendall(
                    b"POST /api/v1/ingest/m/p HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-npy\r\n"
                    b"Content-Length: 1000000\r\n\r\n" + bytes(900_000)
                )
                assert send(served.port, npy()).status == 202, "there is room for a few rows"
                return send(served.port, npy(8_000))

        # whoever comes second is refused, and that may be the slow one
        reply = until(lambda: (found := beside_a_slow_one()).status == 429 and found, "a refusal")
        assert int(reply.headers["retry-after"]) >= 1
        assert ask(served.port, "/metrics").status == 200
        until(lambda: send(served.port, npy(8_000)).status == 202, "room")


def test_too_many_connections_cut_the_one_that_waits_longest(tmp_path: Path) -> None:
    with serving(tmp_path, max_connections=8) as served:
        idle = [raw(served.port) for _ in range(20)]
        try:
            until(lambda: ask(served.port, "/-/healthy").status == 200, "an answer beside idle connections")
            assert idle[0].recv(1) == b""
        finally:
            for connection in idle:
                connection.close()


class Holding(Sink, register=False):
    """Holds the evaluator up until it is let go."""

    name = "holding"

    def __init__(self) -> None:
        self.held, self.let_go = threading.Event(), threading.Event()

    def write(self, *told: Any) -> None:
        del told
        self.held.set()
        self.let_go.wait(30)


def test_a_full_slot_says_when_to_come_again(tmp_path: Path) -> None:
    sink = Holding()
    with serving(tmp_path, sinks=[(sink, False)], limits={"slot_bytes": 8 << 20}) as served:
        assert send(served.port, npy()).status == 202
        closing = threading.Thread(target=served.heart.close_windows)
        closing.start()
        assert sink.held.wait(30)
        replies = [send(served.port, npy(2000, 256, seed), "/api/v1/ingest/full/p") for seed in range(5)]
        sink.let_go.set()
        closing.join()
        assert replies[0].status == 202
        assert replies[-1].status == 429
        assert int(replies[-1].headers["retry-after"]) >= 1
        until(lambda: send(served.port, npy(9, 256), "/api/v1/ingest/full/p").status == 202, "room")


def test_while_it_drains_nothing_is_taken_but_all_is_shown(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert send(served.port, npy()).status == 202
        assert served.heart.drain(20.0)
        reply = send(served.port, npy())
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert ask(served.port, "/-/ready").status == 503
        assert ask(served.port, "/metrics").status == 200


def test_with_a_token_only_health_and_the_empty_page_are_open(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKEN)
    with serving(tmp_path, auth={"token_file": str(tokens)}) as served:
        for path in ("/metrics", "/openapi.json", "/api/v1/status", "/page/nothing", "/nothing", "/-/ready/"):
            reply = ask(served.port, path)
            assert (reply.status, reply.headers["www-authenticate"]) == (401, 'Bearer realm="embedwatch"')
            assert TOKEN not in reply.error
        assert send(served.port, npy()).status == 401
        assert {ask(served.port, path).status for path in ("/-/healthy", "/-/ready", "/")} == {200}
        assert ask(served.port, "/metrics", Authorization=f"Bearer {TOKEN}").status == 200
        assert send(served.port, npy(), Authorization=f"Bearer {TOKEN}").status == 202


def test_reload_has_to_be_allowed(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        assert ask(served.port, "/-/reload", "POST").status == 403
    with serving(tmp_path, enable_lifecycle=True) as served:
        assert ask(served.port, "/-/reload", "POST").status == 200
        assert ask(served.port, "/-/reload").status == 405


@pytest.mark.parametrize(
    "path",
    ["/api/v1/ingest/{model:path}/{place}", "/api/v1/parcels", "/api/v1/spaces/{model:path}/{place}", "/metrics"],
)
def test_openapi_describes_it(port: int, path: str) -> None:
    paths = ask(port, "/openapi.json").json["paths"]
    assert path.replace(":path", "") in paths


EXAMPLES = 15


@schemathesis.serializer(PARCEL, *(kind for kind in ROW_TYPES if kind != "application/json"))
def as_it_is(context: Any, value: Any) -> bytes:
    del context
    return value if isinstance(value, bytes) else json.dumps(value).encode()


SLOW = list(HealthCheck)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.filterwarnings("ignore")  # of the tool itself
def test_nothing_that_follows_openapi_or_breaks_it_surprises_the_daemon(served: Served) -> None:
    schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{served.port}/openapi.json")
    tried = []
    for result in schema.get_all_operations():
        operation = result.ok()
        for mode in GenerationMode:

            @settings(max_examples=EXAMPLES, database=None, phases=[Phase.generate], suppress_health_check=SLOW)
            @given(operation.as_strategy(generation_mode=mode))
            def answers(case: Any) -> None:
                case.validate_response(case.call(timeout=30), checks=CHECKS)

            try:
                answers()
            except Unsatisfiable:  # an operation without parameters has no wrong ones
                continue
            tried.append((operation.label, mode))
    assert len(tried) >= 12
