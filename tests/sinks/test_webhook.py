"""The webhook against real receivers: what it posts, when, and what happens to those that are slow, failing or gone."""

from __future__ import annotations

import base64
import logging
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from embedwatch import watch
from embedwatch.core import Evidence, Limit, Provenance, Snapshot, Space, UsageError, Verdict
from embedwatch.core.boundary import Boundary
from embedwatch.core.verdict import Status
from embedwatch.operations import all_alerts
from embedwatch.operations.alerts import RUNBOOKS
from embedwatch.sinks import open_sink
from embedwatch.sinks.webhook import REPEAT, Webhook
from tests.polling import poll
from tests.sinks.receiver import Receiver

SPACE = Space("bert", "pooled")
QUICK = (0.01, 0.01)
BRIEF = 1.0
"""Seconds in which a write must be over on a busy machine, however slow the other side is."""


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


def snapshot(when: float = 1_700_000_000.0, space: Space = SPACE) -> Snapshot:
    return Snapshot(space, (), Provenance(time=when, rows=100))


def verdict(status: Status, check: str = "collapse", *, space: Space = SPACE, reason: str = "It is so.") -> Verdict:
    limit = Limit(warn=0.95, fail=0.98)
    return Verdict(check, "mean cosine", space, status, Evidence(0.99, limit), 0.98, reason, "All alike.", "Retrain.")


def write(sink: Webhook, *statuses: Status, when: float = 1_700_000_000.0) -> None:
    for status in statuses:
        sink.write(snapshot(when), [verdict(status)])


def statuses(receiver: Receiver) -> list[list[tuple[str, str]]]:
    """Return status and severity of the alerts of each message that was taken."""
    return [[(alert["status"], alert["labels"]["severity"]) for alert in body["alerts"]] for body in receiver.taken]


def after(receiver: Receiver, count: int) -> list[dict[str, Any]]:
    """Return all messages once so many were taken."""
    poll(lambda: len(receiver.taken) >= count)
    return receiver.taken


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as made:
        yield made


@pytest.fixture
def sink(receiver: Receiver) -> Iterator[Webhook]:
    with Webhook(receiver.url, pauses=QUICK) as made:
        yield made


class TestMessage:
    def test_what_fires_is_told_as_alertmanager_does(self, receiver: Receiver, sink: Webhook) -> None:
        write(sink, "fail")
        (body,) = after(receiver, 1)
        labels = {
            "alertname": "EmbedwatchCollapse",
            "severity": "critical",
            "model": "bert",
            "place": "pooled",
            "segment": "all",
            "check": "collapse",
        }
        annotations = {
            "summary": "All alike.",
            "description": "bert/pooled: mean cosine: It is so.",
            "remedy": "Retrain.",
            "runbook_url": f"{RUNBOOKS}/EmbedwatchCollapse.md",
        }
        (alert,) = body.pop("alerts")
        assert len(alert.pop("fingerprint")) == 16
        assert alert == {
            "status": "firing",
            "labels": labels,
            "annotations": annotations,
            "startsAt": "2023-11-14T22:13:20.000Z",
            "endsAt": "0001-01-01T00:00:00Z",
            "generatorURL": "",
        }
        group = {name: value for name, value in labels.items() if name != "severity"}
        assert body == {
            "version": "4",
            "groupKey": '{}:{alertname="EmbedwatchCollapse", check="collapse", model="bert", place="pooled", '
            'segment="all"}',
            "truncatedAlerts": 0,
            "status": "firing",
            "receiver": "embedwatch",
            "groupLabels": group,
            "commonLabels": labels,
            "commonAnnotations": annotations,
            "externalURL": "",
        }

    def test_names_and_severities_are_those_of_the_rules(self, receiver: Receiver, sink: Webhook) -> None:
        rules = {alert.name: alert.severity for alert in all_alerts()}
        checks = ("collapse", "extreme_norms", "of_another_package")
        sink.write(snapshot(), [verdict("fail", check) for check in checks])
        found = {body["alerts"][0]["labels"]["alertname"]: body["alerts"][0] for body in after(receiver, 3)}
        assert found["EmbedwatchCollapse"]["labels"]["severity"] == rules["EmbedwatchCollapse"]
        assert found["EmbedwatchExtremeNorms"]["labels"]["severity"] == rules["EmbedwatchExtremeNorms"]
        assert found["EmbedwatchOfAnotherPackage"]["labels"]["severity"] == "warning"

    def test_what_recovers_is_resolved_as_the_same_alert(self, receiver: Receiver, sink: Webhook) -> None:
        write(sink, "warn")
        (first,) = after(receiver, 1)
        write(sink, "ok", when=1_700_000_060.5)
        _, second = after(receiver, 2)
        fired, resolved = first["alerts"][0], second["alerts"][0]
        assert (second["status"], resolved["status"]) == ("resolved", "resolved")
        assert resolved["endsAt"] == "2023-11-14T22:14:20.500Z"
        for same in ("fingerprint", "labels", "startsAt"):
            assert fired[same] == resolved[same]
        assert first["groupKey"] == second["groupKey"]

    def test_what_gets_worse_resolves_the_one_and_fires_the_other(self, receiver: Receiver, sink: Webhook) -> None:
        write(sink, "warn")
        after(receiver, 1)
        write(sink, "fail", when=1_700_000_060)
        body = after(receiver, 2)[1]
        assert body["status"] == "firing"
        assert statuses(receiver) == [[("firing", "info")], [("resolved", "info"), ("firing", "critical")]]
        old, new = body["alerts"]
        assert old["fingerprint"] != new["fingerprint"]
        assert old["endsAt"] == new["startsAt"] == "2023-11-14T22:14:20.000Z"
        assert "severity" not in body["commonLabels"]

    def test_spaces_and_heads_are_told_apart(self, receiver: Receiver, sink: Webhook) -> None:
        spaces = [SPACE, Space("bert", "layers.1"), Space("bert", "pooled", "de"), Space("bert", "pooled", head="3")]
        for space in spaces:
            sink.write(snapshot(space=space), [verdict("fail", space=space)])
        bodies = after(receiver, len(spaces))
        assert len({body["groupKey"] for body in bodies}) == len(spaces)
        assert len({body["alerts"][0]["fingerprint"] for body in bodies}) == len(spaces)
        assert bodies[3]["groupLabels"]["head"] == "3"

    def test_text_of_any_kind_arrives(self, receiver: Receiver, sink: Webhook) -> None:
        space = Space('q"\\\n', "行\udcff")
        sink.write(snapshot(space=space), [verdict("fail", space=space, reason="one\ntwo")])
        (body,) = after(receiver, 1)
        assert body["groupLabels"]["model"] == 'q"\\\n'
        assert body["commonAnnotations"]["description"].endswith("one two")

    def test_where_it_comes_from_can_be_said(self, receiver: Receiver) -> None:
        with Webhook(receiver.url, external_url="https://run.example", runbooks="https://wiki/") as sink:
            write(sink, "fail")
        (body,) = receiver.taken
        assert body["externalURL"] == "https://run.example"
        assert body["commonAnnotations"]["runbook_url"] == "https://wiki/EmbedwatchCollapse.md"


class TestOnce:
    def test_nothing_is_told_of_what_is_well_or_unknown(self, receiver: Receiver, sink: Webhook) -> None:
        write(sink, "ok", "unknown", "ok")
        sink.close()
        assert receiver.bodies == []

    def test_an_unchanged_status_is_told_once(self, receiver: Receiver, sink: Webhook) -> None:
        write(sink, "fail")
        after(receiver, 1)
        write(sink, "fail", "unknown", "fail")
        write(sink, "ok")
        after(receiver, 2)
        write(sink, "ok", "unknown")
        sink.close()
        assert statuses(receiver) == [[("firing", "critical")], [("resolved", "critical")]]

    def test_what_lasts_is_told_again_after_hours_with_its_first_time(self, receiver: Receiver) -> None:
        clock = Clock()
        with Webhook(receiver.url, clock=clock) as sink:
            write(sink, "fail")
            after(receiver, 1)
            for seconds in (REPEAT / 2, REPEAT / 2 - 1):
                clock.now += seconds
                write(sink, "fail", when=clock.now)
            sink.write(snapshot(clock.now), [verdict("fail", "zero_rows")])
            after(receiver, 2)
            clock.now += 1
            sink.write(snapshot(clock.now), [verdict("fail", reason="Still so.")])
            body = after(receiver, 3)[2]
        assert len(receiver.taken) == 3
        assert body["groupLabels"]["check"] == "collapse"
        assert body["alerts"][0]["startsAt"] == receiver.taken[0]["alerts"][0]["startsAt"]
        assert body["alerts"][0]["annotations"]["description"].endswith("Still so.")

    def test_what_came_and_went_untold_is_not_told(self, receiver: Receiver) -> None:
        receiver.status = 500
        with Webhook(receiver.url, pauses=(), rest=60) as sink:
            write(sink, "fail")
            poll(lambda: receiver.bodies)
            poll(lambda: sink._failure)
            receiver.status = 200
            with pytest.raises(ConnectionError, match="500"):
                write(sink, "ok")
        assert receiver.taken == []


class TestTrouble:
    def test_a_slow_receiver_holds_up_no_write(self, receiver: Receiver, sink: Webhook) -> None:
        receiver.open.clear()
        began = time.monotonic()
        for index in range(50):
            sink.write(snapshot(), [verdict("fail", f"check_{index}")])
        assert time.monotonic() - began < BRIEF
        assert len(receiver.bodies) <= 1
        receiver.open.set()
        assert len(after(receiver, 50)) == 50

    def test_one_that_never_answers_is_given_up_in_time(self, receiver: Receiver) -> None:
        receiver.open.clear()
        sink = Webhook(receiver.url, timeout=0.1, pauses=())
        write(sink, "fail")
        poll(lambda: sink._failure)
        with pytest.raises(ConnectionError, match="timed out"):
            write(sink, "fail")
        with pytest.raises(ConnectionError):
            sink.close()

    @pytest.mark.parametrize("status", [500, 503, 429, 408])
    def test_what_fails_is_tried_again_and_then_told(self, receiver: Receiver, status: int) -> None:
        receiver.status = status
        with Webhook(receiver.url, pauses=(0.01, 60.0)) as sink:
            write(sink, "fail")
            poll(lambda: len(receiver.bodies) == 2)
            receiver.status = 200
        assert statuses(receiver) == [[("firing", "critical")]]

    @pytest.mark.parametrize("status", [400, 401, 404, 302])
    def test_what_is_refused_is_not_tried_again_at_once(self, receiver: Receiver, status: int) -> None:
        receiver.status = status
        sink = Webhook(receiver.url, pauses=QUICK)
        write(sink, "fail")
        poll(lambda: sink._failure)
        assert len(receiver.bodies) == 1
        assert receiver.requests[0][0] == "/hook?token=geheim"
        receiver.status = 200
        with pytest.raises(ConnectionError, match=f"status {status}"):
            write(sink, "fail")
        after(receiver, 1)
        sink.close()
        assert statuses(receiver) == [[("firing", "critical")]]

    def test_a_message_that_is_never_wanted_holds_up_no_other(self, receiver: Receiver) -> None:
        with Webhook(receiver.url, pauses=(), rest=0.01) as sink:
            receiver.status = 400
            write(sink, "fail")
            poll(lambda: receiver.bodies)
            poll(lambda: sink._failure)
            with pytest.raises(ConnectionError, match="400"):
                sink.write(snapshot(), [verdict("fail", "zero_rows")])
            poll(lambda: len({body["groupKey"] for body in receiver.bodies}) == 2)
            receiver.status = 200
            after(receiver, 2)

    def test_one_that_comes_back_is_told_how_things_stand(self) -> None:
        with Receiver() as first:
            port = first.port
            sink = Webhook(first.url, pauses=(), rest=0.05)
            write(sink, "fail")
            sink.write(snapshot(), [verdict("warn", "zero_rows")])
            after(first, 2)
        sink.write(snapshot(), [verdict("ok"), verdict("fail", "zero_rows"), verdict("fail", "rank_collapse")])
        poll(lambda: sink._failure)
        with Receiver(port=port) as second:
            found = {body["groupLabels"]["check"]: body for body in after(second, 3)}
            sink.close()
        assert len(second.taken) == 3
        assert found["collapse"]["status"] == "resolved"
        assert [alert["status"] for alert in found["zero_rows"]["alerts"]] == ["resolved", "firing"]
        assert found["rank_collapse"]["status"] == "firing"

    def test_each_failure_is_counted_once_at_the_boundary(self, caplog: pytest.LogCaptureFixture) -> None:
        boundary = Boundary()
        sink = Webhook(f"http://user:geheim@127.0.0.1:{free_port()}/geheim?geheim", pauses=QUICK, rest=60)

        def through_the_boundary() -> None:
            with boundary.guard("sink", sink.name):
                write(sink, "fail")

        with caplog.at_level(logging.DEBUG):
            through_the_boundary()
            poll(lambda: sink._failure)
            through_the_boundary()
            assert boundary.errors == {("sink", "webhook"): 1}
            with pytest.raises(ConnectionError) as raised:
                sink.close()
        assert "refused" in str(raised.value)
        assert "127.0.0.1" in caplog.text
        for told in (caplog.text, str(raised.value)):
            assert "geheim" not in told
            assert "user" not in told

    def test_what_answers_no_http_is_a_failure(self) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            sink = Webhook(f"http://127.0.0.1:{listener.getsockname()[1]}", pauses=(), timeout=2)

            def babble() -> None:
                for _ in range(2):
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(1 << 16)
                        connection.sendall(b"220 ready\r\n")

            talker = threading.Thread(target=babble, daemon=True)
            talker.start()
            write(sink, "fail")
            poll(lambda: sink._failure)
            assert "BadStatusLine" in sink._failure
            with pytest.raises(ConnectionError):
                sink.close()
            talker.join()

    def test_findings_without_room_are_dropped_and_raised_once(self, receiver: Receiver) -> None:
        with Webhook(receiver.url, capacity=2) as sink:
            sink.write(snapshot(), [verdict("fail", "a"), verdict("fail", "b")])
            after(receiver, 2)
            with pytest.raises(ConnectionError, match="room"):
                sink.write(snapshot(), [verdict("fail", name) for name in "abcd"])
            sink.write(snapshot(), [verdict("fail", name) for name in "abcd"])
            assert len(receiver.bodies) == 2
            sink.write(snapshot(), [verdict("ok", "a")])
            poll(lambda: not sink._book.is_full)
            with pytest.raises(ConnectionError, match="room"):
                sink.write(snapshot(), [verdict("fail", name) for name in "cd"])
            after(receiver, 4)
        assert [body["groupLabels"]["check"] for body in receiver.taken] == ["a", "b", "a", "c"]


class TestEnd:
    def test_what_waits_is_told_before_it_ends(self, receiver: Receiver) -> None:
        for _ in range(20):
            with Webhook(receiver.url) as sink:
                write(sink, "fail")
        assert len(receiver.taken) == 20

    def test_a_run_that_ends_resolves_nothing(self, receiver: Receiver, sink: Webhook) -> None:
        write(sink, "fail")
        sink.close()
        assert statuses(receiver) == [[("firing", "critical")]]
        assert not sink._thread.is_alive()

    def test_what_could_not_be_told_is_said_once(self) -> None:
        sink = Webhook(f"http://127.0.0.1:{free_port()}", pauses=(60.0,))
        write(sink, "fail")
        began = time.monotonic()
        with pytest.raises(ConnectionError, match="1 messages"):
            sink.close()
        assert time.monotonic() - began < 10 * BRIEF
        sink.close()


def test_a_monitor_tells_of_a_table_that_has_collapsed(receiver: Receiver) -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(200, 16), torch.nn.Linear(16, 200))
    with torch.no_grad():
        model[0].weight.copy_(torch.ones(200, 16) + 1e-3 * torch.randn(200, 16))
    with watch(model, name="toy", places=["0"], every=1, sinks=[f"webhook:{receiver.url}"]) as monitor:
        model(torch.arange(200)[None])
        monitor.step(loss=5.0)
    found = {(body["groupLabels"]["alertname"], body["groupLabels"]["place"]) for body in receiver.taken}
    assert ("EmbedwatchCollapse", "token_table") in found
    assert len(found) == len(receiver.taken)
    assert {body["groupLabels"]["model"] for body in receiver.taken} == {"toy"}
    assert not [key for key in monitor.boundary.errors if key[0] == "sink"]


class TestAddress:
    def test_a_user_is_sent_as_basic_authentication(self, receiver: Receiver) -> None:
        with open_sink(f"webhook:http://me:p%40ss@{receiver.host}/a?b=c") as sink:
            sink.write(snapshot(), [verdict("fail")])
        ((path, headers),) = receiver.requests
        assert path == "/a?b=c"
        assert headers["Authorization"] == f"Basic {base64.b64encode(b'me:p@ss').decode()}"
        assert headers["Content-Type"] == "application/json"
        assert "me" not in headers["Host"]

    @pytest.mark.parametrize(
        "url",
        ["ftp://geheim/x", "file:///geheim", "geheim.example/x", "http://", "http:///geheim", "http://h:geheim/",
         "http://h/gehe im", "http://h/geheim\n", "http://h/gehéim", "http://[geheim/"],
    )  # fmt: skip
    def test_what_is_no_address_is_refused_and_not_repeated(self, url: str) -> None:
        with pytest.raises(UsageError, match="`url` must") as raised:
            Webhook(url)
        assert "geheim" not in str(raised.value)

    @pytest.mark.parametrize("name", ["repeat", "capacity", "timeout", "rest"])
    def test_numbers_out_of_range_are_refused(self, name: str) -> None:
        options: dict[str, Any] = {name: 0}
        with pytest.raises(UsageError, match=f"`{name}` must be positive"):
            Webhook("http://h", **options)

    def test_an_address_is_needed(self) -> None:
        with pytest.raises(UsageError, match="webhook:URL"):
            open_sink("webhook")
