"""The example for Alertmanager: amtool accepts it, alerts go where it says, and a real one inhibits what it should."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedwatch.core import Evidence, Provenance, Snapshot, Space, Verdict
from embedwatch.operations import all_alerts
from embedwatch.sinks.webhook import Webhook
from tests.alertmanager_server import AlertmanagerServer
from tests.dashboards.tools import PROMETHEUS
from tests.polling import poll
from tests.sinks.receiver import Receiver

CONFIG = PROMETHEUS / "alertmanager.yml"
AMTOOL, ALERTMANAGER = shutil.which("amtool"), shutil.which("prometheus-alertmanager")
needs_alertmanager = pytest.mark.skipif(
    AMTOOL is None or ALERTMANAGER is None, reason="Alertmanager is not installed (Debian: prometheus-alertmanager)"
)
ALERTS = {alert.name: alert for alert in all_alerts()}
RECEIVERS = {"critical": "page", "warning": "tickets", "info": "nobody"}

Labels = dict[str, str]
PLACE = {"job": "embedwatch", "instance": "a:1", "model": "bert", "place": "pooled", "segment": "all"}


def labels(name: str, **changed: str) -> Labels:
    """Return the labels with which one of our alerts fires."""
    alert = ALERTS[name]
    about = {**PLACE, **alert.trial.labels}
    kept = ("job", "instance", *alert.trial.labels) if alert.trial.signals else ()
    return {"alertname": name, "severity": alert.severity, **{key: about[key] for key in kept}, **changed}


def amtool(*arguments: str) -> tuple[int, str]:
    assert AMTOOL is not None
    done = subprocess.run([AMTOOL, *arguments], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout + done.stderr


def inhibited(folder: Path, *alerts: Labels) -> set[str]:
    """Return the names of those alerts that others silence, in a real Alertmanager with our example."""
    assert ALERTMANAGER is not None
    with AlertmanagerServer(ALERTMANAGER, folder, CONFIG) as server:
        server.post(alerts)
        poll(lambda: all(alert["status"]["state"] != "unprocessed" for alert in server.alerts()))
        found = server.alerts()
    assert len(found) == len(alerts)
    return {alert["labels"]["alertname"] for alert in found if alert["status"]["inhibitedBy"]}


@needs_alertmanager
class TestAmtool:
    def test_the_example_is_valid(self) -> None:
        code, said = amtool("check-config", str(CONFIG))
        assert code == 0, said

    @pytest.mark.parametrize("name", ALERTS)
    def test_each_alert_goes_to_who_should_know(self, name: str) -> None:
        expected = "watchdog" if name == "EmbedwatchWatchdog" else RECEIVERS[ALERTS[name].severity]
        sets = [f"{key}={value}" for key, value in labels(name).items()]
        command = ("config", "routes", "test", f"--config.file={CONFIG}", f"--verify.receivers={expected}", *sets)
        code, said = amtool(*command)
        assert code == 0, said


def test_alerts_are_grouped_by_what_they_are_and_whose() -> None:
    config = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    assert config["route"]["group_by"] == ["alertname", "model"]
    used = {rule for inhibit in config["inhibit_rules"] for rule in inhibit["equal"]}
    assert used <= {*PLACE, "check"}


@needs_alertmanager
class TestInhibition:
    def test_a_process_that_is_down_silences_what_is_old_about_it(self, tmp_path: Path) -> None:
        found = inhibited(
            tmp_path,
            labels("EmbedwatchDown"),
            labels("EmbedwatchCollapse"),
            labels("EmbedwatchErrors"),
            labels("EmbedwatchStale", instance="another:1"),
            labels("EmbedwatchWatchdog"),
        )
        assert found == {"EmbedwatchCollapse", "EmbedwatchErrors"}

    def test_what_is_critical_silences_warnings_about_the_same(self, tmp_path: Path) -> None:
        same = labels("EmbedwatchCollapse", alertname="OurOwnRule", severity="warning")
        found = inhibited(
            tmp_path,
            labels("EmbedwatchCollapse"),
            same,
            {**same, "alertname": "OtherPlace", "place": "layers.1"},
            {**same, "alertname": "OtherModel", "model": "gpt"},
            {**same, "alertname": "OtherCheck", "check": "zero_rows"},
            labels("EmbedwatchOverhead"),
        )
        assert found == {"OurOwnRule"}

    def test_a_check_that_fails_silences_the_sum_of_warnings_of_its_model(self, tmp_path: Path) -> None:
        found = inhibited(
            tmp_path,
            labels("EmbedwatchExtremeNorms"),
            labels("EmbedwatchWarning"),
            labels("EmbedwatchLabelOverflow"),
        )
        assert found == {"EmbedwatchWarning"}

    def test_warnings_alone_are_told(self, tmp_path: Path) -> None:
        found = inhibited(
            tmp_path,
            labels("EmbedwatchExtremeNorms", model="gpt"),
            labels("EmbedwatchWarning"),
            labels("EmbedwatchSeriesDropped"),
            labels("EmbedwatchDown", instance="another:1"),
        )
        assert found == set()


def shape(value: Any) -> Any:
    """Return what kinds of values stand under which keys; labels and annotations are free."""
    if isinstance(value, Mapping):
        free = ("labels", "annotations", "groupLabels", "commonLabels", "commonAnnotations")
        return {key: dict if key in free else shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value)


@needs_alertmanager
def test_the_webhook_sink_posts_what_a_real_alertmanager_posts(tmp_path: Path) -> None:
    assert ALERTMANAGER is not None
    with Receiver() as theirs, Receiver() as ours:
        config = {
            "route": {"receiver": "embedwatch", "group_by": ["alertname", "model"], "group_wait": "0s",
                      "group_interval": "1s"},
            "receivers": [{"name": "embedwatch", "webhook_configs": [{"url": theirs.url}]}],
        }  # fmt: skip
        path = tmp_path / "alertmanager.yml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        with AlertmanagerServer(ALERTMANAGER, tmp_path, path) as server:
            server.post([labels("EmbedwatchCollapse")])
            poll(lambda: theirs.taken)
            server.post([labels("EmbedwatchCollapse")], resolved=True)
            poll(lambda: len(theirs.taken) >= 2)
        with Webhook(ours.url) as sink:
            for index, status in enumerate(("fail", "ok")):
                space = Space("bert", "pooled")
                verdict = Verdict("collapse", "cosine", space, status, Evidence(1.0), None, "Why.", "What.", "How.")  # type: ignore[arg-type]
                sink.write(Snapshot(space, (), Provenance(time=1.7e9 + index, rows=1)), [verdict])
                poll(lambda count=index: len(ours.taken) > count)  # type: ignore[misc]
    for index in range(2):
        real, made = theirs.taken[index], ours.taken[index]
        assert shape(made) == shape(real)
        assert [alert["status"] for alert in made["alerts"]] == [alert["status"] for alert in real["alerts"]]
        for same in ("version", "status", "receiver", "truncatedAlerts"):
            assert made[same] == real[same]
        assert real["groupKey"] == '{}:{alertname="EmbedwatchCollapse", model="bert"}'
        assert made["groupKey"].startswith('{}:{alertname="EmbedwatchCollapse", check="collapse", model="bert"')
        assert made["commonLabels"].items() <= {**real["commonLabels"], "place": "pooled"}.items()
    assert ours.taken[0]["alerts"][0]["endsAt"] == theirs.taken[0]["alerts"][0]["endsAt"]
