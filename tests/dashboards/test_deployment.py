"""The deployment files: each passes its own linter, which finds what is wrong, and they agree with each other."""

from __future__ import annotations

import copy
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from embedwatch.daemon.config_file import load_config
from embedwatch.operations import deployment
from embedwatch.operations.settings import GRACE, IMAGE, PORT, SECRETS, STATE, USER
from tests.checkout import ROOT
from tests.daemon.serving import serving
from tests.dashboards.tools import PROMETHEUS, committed_dashboards, committed_rules, needs_promtool, promtool
from tests.polling import poll
from tests.prometheus_server import require
from tests.server_process import free_port

DEPLOY = ROOT / "examples" / "deploy"
DOCKERFILE, COMPOSE = DEPLOY / "Dockerfile", DEPLOY / "compose.yaml"
UNIT, UNIT_CONFIG = DEPLOY / "systemd" / "embedwatch.service", DEPLOY / "systemd" / "embedwatch.yaml"
PATH = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
APPLIED = 262_144
"""Bytes that kubectl keeps of an object in an annotation; a larger one cannot be applied."""
TOKEN = "0123456789abcdef0123456789abcdef\n"
EXPOSURE = 2.0
"""The unit is less exposed than this, in the words of `systemd-analyze security`; 10 is everything."""


def tool(name: str, *arguments: str | Path, cwd: Path | None = None) -> tuple[int, str]:
    """Run a linter; return its exit code, and what it said."""
    program = shutil.which(name, path=PATH)
    if program is None:
        pytest.skip(f"{name} is not installed (pip: the extra dev; Debian: systemd)")
    command = [program, *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def manifests(name: str) -> list[dict[str, Any]]:
    text = DEPLOY.joinpath("kubernetes", f"{name}.yaml").read_text(encoding="utf-8")
    return list(yaml.safe_load_all(text))


def of_kind(kind: str, name: str = "daemon") -> dict[str, Any]:
    (found,) = (each for each in manifests(name) if each["kind"] == kind)
    return found


def written(folder: Path, value: Any, name: str = "changed.yaml") -> Path:
    path = folder / name
    path.write_text(value if isinstance(value, str) else yaml.safe_dump(value), encoding="utf-8")
    return path


class TestDockerfile:
    TEXT = DOCKERFILE.read_text(encoding="utf-8")

    def test_hadolint_finds_nothing(self) -> None:
        assert tool("hadolint", DOCKERFILE) == (0, "")

    @pytest.mark.parametrize(
        ("old", "new", "rule"),
        [
            ("python:3.11-slim-bookworm AS build", "python:latest AS build", "DL3007"),
            ("COPY model model", "ADD model model", "DL3020"),
            ("WORKDIR /src", "WORKDIR src", "DL3000"),
            ('ENTRYPOINT ["embedwatch"]', "ENTRYPOINT embedwatch", "DL3025"),
        ],
    )
    def test_hadolint_would_find(self, tmp_path: Path, old: str, new: str, rule: str) -> None:
        assert old in self.TEXT
        code, said = tool("hadolint", written(tmp_path, self.TEXT.replace(old, new), "Dockerfile"))
        assert code == 1
        assert rule in said

    def test_it_runs_as_somebody_who_is_not_root(self) -> None:
        assert re.findall(r"^USER (.+)$", self.TEXT, re.MULTILINE) == [f"{USER}:{USER}"]
        assert f"install -d -o {USER} -g {USER}" in self.TEXT
        assert f"EXPOSE {PORT}" in self.TEXT
        assert f"VOLUME {STATE}" in self.TEXT

    def test_what_it_copies_is_let_into_the_context(self) -> None:
        lines = DEPLOY.joinpath("Dockerfile.dockerignore").read_text(encoding="utf-8").split()
        allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
        copied = re.findall(r"^COPY (?!--from)(.+) \S+$", self.TEXT, re.MULTILINE)
        names = {name for line in copied for name in line.split()}
        assert names == allowed
        assert [name for name in names if not ROOT.joinpath(name).exists()] == []

    def test_its_health_check_tells_a_daemon_that_lives_from_one_that_does_not(self, tmp_path: Path) -> None:
        found = re.search(r"HEALTHCHECK .*\\\n\s+CMD (\[.+\])$", self.TEXT, re.MULTILINE)
        assert found is not None
        command = json.loads(found[1])
        with serving(tmp_path) as served:
            assert answered(command, served.port) == 0
        assert answered(command, free_port()) != 0

    @pytest.mark.slow
    def test_what_it_copies_makes_a_wheel(self, tmp_path: Path) -> None:
        source = tmp_path / "src"
        source.mkdir()
        for name in ("pyproject.toml", "setup.py", "constraints.txt", "README.md", "LICENSE", "embedwatch", "model"):
            assert name in self.TEXT
            copy_of = shutil.copytree if ROOT.joinpath(name).is_dir() else shutil.copy
            copy_of(ROOT / name, source / name)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", tmp_path]
        done = subprocess.run([*map(str, command), "."], cwd=source, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert len(list(tmp_path.glob("*.whl"))) == 1


def answered(command: list[str], port: int) -> int:
    """Return the exit status of a health check whose daemon is at another port."""
    words = [sys.executable, *command[1:]]
    assert any(f":{PORT}/" in word for word in words)
    changed = [word.replace(f":{PORT}/", f":{port}/") for word in words]
    return subprocess.run(changed, capture_output=True, timeout=60).returncode


class TestCompose:
    FOUND = read(COMPOSE)

    def test_it_is_as_the_specification_says(self) -> None:
        code, said = tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)
        assert code == 0, said

    @pytest.mark.parametrize(
        "change",
        [
            lambda services: services["embedwatch"].update(helthcheck={}),
            lambda services: services["embedwatch"]["healthcheck"].update(retrys=3),
            lambda services: services["prometheus"]["depends_on"]["embedwatch"].update(condition="healthy"),
        ],
    )
    def test_what_is_not_is_found(self, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
        changed = copy.deepcopy(self.FOUND)
        change(changed["services"])
        path = written(tmp_path, changed)
        assert tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", path)[0] == 1

    def test_each_service_says_how_it_is_and_waits_for_the_health_of_others(self) -> None:
        for name, service in self.FOUND["services"].items():
            assert service["healthcheck"]["test"][0] == "CMD", name
            conditions = {each["condition"] for each in service.get("depends_on", {}).values()}
            assert conditions <= {"service_healthy"}, name
            assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name

    def test_what_it_mounts_is_there(self) -> None:
        volumes = [line for service in self.FOUND["services"].values() for line in service["volumes"]]
        named = {line.split(":")[0] for line in volumes if not line.startswith(".")}
        assert named == set(self.FOUND["volumes"])
        assert [line for line in volumes if line.startswith(".") and not (DEPLOY / line.split(":")[0]).exists()] == []
        assert self.FOUND["secrets"] == {"token": {"file": "./token"}}

    def test_the_daemon_may_do_little(self) -> None:
        service = self.FOUND["services"]["embedwatch"]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["image"] == IMAGE
        assert int(service["stop_grace_period"].removesuffix("s")) == GRACE
        (secret,) = service["secrets"]
        assert secret["target"] == f"{SECRETS}/tokens"
        assert self.FOUND["services"]["prometheus"]["secrets"] == [secret]

    def test_the_data_source_is_the_one_of_the_dashboards(self) -> None:
        ours = read(DEPLOY / "grafana-datasource.yaml")
        shipped = read(ROOT / "dashboards" / "grafana" / "provisioning" / "datasources" / "prometheus.yaml")
        (source,), (other,) = ours["datasources"], shipped["datasources"]
        assert source == {**other, "url": "http://prometheus:9090"}


class TestConfigurations:
    @pytest.mark.parametrize("path", [DEPLOY / "embedwatch.yaml", UNIT_CONFIG], ids=lambda path: path.parent.name)
    def test_the_daemon_takes_them(self, path: Path) -> None:
        config = load_config(path, environment={})
        assert config.web.listen == [f"0.0.0.0:{PORT}"]
        assert config.web.auth.token_file is not None
        assert str(config.storage.path) == STATE
        assert config.drain < GRACE

    @needs_promtool
    def test_promtool_takes_that_of_prometheus(self, tmp_path: Path) -> None:
        code, said = promtool("check", "config", on_this_machine(tmp_path, "embedwatch:9477"))
        assert code == 0, said
        assert f"{len(committed_rules()['groups'])} " in said or "rules found" in said

    def test_it_scrapes_as_the_example_does(self) -> None:
        ours, example = read(DEPLOY / "prometheus.yml"), read(PROMETHEUS / "prometheus.yml")
        (job,), (other,) = ours["scrape_configs"], example["scrape_configs"]
        assert ours["global"] == example["global"]
        free = ("static_configs", "authorization")
        assert {key: value for key, value in job.items() if key not in free} == {
            key: value for key, value in other.items() if key not in free
        }


def on_this_machine(folder: Path, target: str) -> Path:
    """Write Prometheus' configuration with paths and addresses of this machine."""
    text = DEPLOY.joinpath("prometheus.yml").read_text(encoding="utf-8")
    token = written(folder, TOKEN, "tokens")
    for old, new in (
        ("/etc/prometheus/embedwatch.rules.yml", PROMETHEUS / "embedwatch.rules.yml"),
        (f"{SECRETS}/tokens", token),
        ("embedwatch:9477", target),
    ):
        assert old in text
        text = text.replace(old, str(new))
    return written(folder, text, "prometheus.yml")


class TestKubernetes:
    @pytest.mark.parametrize("name", ["daemon", "dashboards"])
    def test_they_are_as_kubernetes_says(self, name: str) -> None:
        code, said = tool("kubernetes-validate", "--strict", DEPLOY / "kubernetes" / f"{name}.yaml")
        assert code == 0, said

    @pytest.mark.parametrize(
        "change",
        [
            lambda pod: pod.update(terminationGracePeriodSeconds="long"),
            lambda pod: pod["containers"][0].update(livenesProbe={}),
            lambda pod: pod["containers"][0]["ports"][0].pop("containerPort"),
        ],
    )
    def test_what_is_not_is_found(self, tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
        changed = of_kind("Deployment")
        change(changed["spec"]["template"]["spec"])
        assert tool("kubernetes-validate", "--strict", written(tmp_path, changed))[0] != 0

    def test_what_belongs_together_finds_each_other(self) -> None:
        deployment_spec = of_kind("Deployment")["spec"]
        labels = deployment_spec["template"]["metadata"]["labels"]
        service, policy, monitor = of_kind("Service"), of_kind("NetworkPolicy"), of_kind("ServiceMonitor", "monitoring")
        for selector in (
            deployment_spec["selector"]["matchLabels"],
            service["spec"]["selector"],
            policy["spec"]["podSelector"]["matchLabels"],
        ):
            assert selector.items() <= labels.items()
        assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        (container,) = deployment_spec["template"]["spec"]["containers"]
        (port,), (served,), (scraped,) = container["ports"], service["spec"]["ports"], monitor["spec"]["endpoints"]
        assert port["name"] == served["targetPort"] == served["name"] == scraped["port"]
        assert port["containerPort"] == PORT
        assert container["image"] == IMAGE
        assert monitor["metadata"]["labels"]["app.kubernetes.io/name"].startswith("embedwatch")  # the rules' jobs

    def test_every_mounted_volume_is_one(self) -> None:
        pod = of_kind("Deployment")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}
        paths = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        config = yaml.safe_load(of_kind("ConfigMap")["data"]["embedwatch.yaml"])
        assert config == read(DEPLOY / "embedwatch.yaml")
        assert config["storage"]["path"] == paths["state"]
        assert config["web"]["auth"]["token_file"] == f"{paths['tokens']}/tokens"
        assert pod["terminationGracePeriodSeconds"] == GRACE

    def test_the_pod_may_do_little(self) -> None:
        pod = of_kind("Deployment")["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["runAsUser"] == USER
        assert pod["automountServiceAccountToken"] is False
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }

    def test_its_probes_are_answered_without_a_token(self, tmp_path: Path) -> None:
        (container,) = of_kind("Deployment")["spec"]["template"]["spec"]["containers"]
        tokens = written(tmp_path, TOKEN, "tokens")
        with serving(tmp_path, auth={"token_file": str(tokens)}) as served:
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                path = container[probe]["httpGet"]["path"]
                with urllib.request.urlopen(f"http://127.0.0.1:{served.port}{path}", timeout=10) as answer:
                    assert answer.status == 200

    @needs_promtool
    def test_its_rules_are_those_that_are_shipped(self, tmp_path: Path) -> None:
        spec = of_kind("PrometheusRule", "monitoring")["spec"]
        assert spec == committed_rules()
        code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", written(tmp_path, spec))
        assert code == 0, said

    def test_its_dashboards_are_those_that_are_shipped(self) -> None:
        found: dict[str, Any] = {}
        for each in manifests("dashboards"):
            assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
            found |= {name: json.loads(text) for name, text in each["data"].items()}
        assert found == committed_dashboards()

    @pytest.mark.parametrize("name", ["daemon", "monitoring", "dashboards"])
    def test_each_object_can_be_applied(self, name: str) -> None:
        for each in manifests(name):
            assert len(json.dumps(each)) < APPLIED, each["metadata"]["name"]
            assert len(each["metadata"]["name"]) <= 63


class TestSystemd:
    TEXT = UNIT.read_text(encoding="utf-8")

    def unit(self, folder: Path, text: str = "") -> Path:
        """Write the unit with a program that is there."""
        command = "/usr/local/lib/embedwatch/bin/embedwatch"
        assert command in self.TEXT
        return written(folder, (text or self.TEXT).replace(command, sys.executable), UNIT.name)

    def test_systemd_finds_nothing(self, tmp_path: Path) -> None:
        assert tool("systemd-analyze", "verify", self.unit(tmp_path)) == (0, "")

    @pytest.mark.parametrize(("old", "new"), [("Type=notify", "Type=notfy"), ("ProtectHome=yes", "ProtectHose=yes")])
    def test_systemd_would_find(self, tmp_path: Path, old: str, new: str) -> None:
        assert old in self.TEXT
        assert tool("systemd-analyze", "verify", self.unit(tmp_path, self.TEXT.replace(old, new)))[1]

    def test_it_is_hardened(self, tmp_path: Path) -> None:
        code, said = tool("systemd-analyze", "security", "--offline=true", self.unit(tmp_path))
        assert code == 0, said
        level = re.search(r"exposure level for \S+: ([\d.]+)", said)
        assert level is not None
        assert float(level[1]) <= EXPOSURE

    def test_it_agrees_with_its_configuration(self) -> None:
        settings = dict(line.split("=", 1) for line in self.TEXT.splitlines() if re.match(r"[A-Za-z]+=", line))
        config = load_config(UNIT_CONFIG, environment={})
        assert shlex.split(settings["ExecStart"])[1:] == ["serve", "--config.file=/etc/embedwatch/embedwatch.yaml"]
        assert float(settings["TimeoutStopSec"]) > config.drain
        assert str(config.storage.path) == f"/var/lib/{settings['StateDirectory']}"
        credential = settings["LoadCredential"].partition(":")[0]
        assert str(config.web.auth.token_file) == f"/run/credentials/{UNIT.name}/{credential}"


@pytest.mark.slow
def test_prometheus_scrapes_the_daemon_of_a_container_with_its_token(tmp_path: Path) -> None:
    """With the files as they are, but for paths and addresses of this machine."""
    port, own = free_port(), free_port()
    config = on_this_machine(tmp_path, f"127.0.0.1:{port}")
    config.write_text(config.read_text().replace("15s", "1s").replace("10s", "1s"))
    settings = deployment()["embedwatch.yaml"]
    for old, new in (
        (f":{PORT}", f":{port}"),
        (f"{SECRETS}/tokens", str(tmp_path / "tokens")),
        (STATE, str(tmp_path / "state")),
    ):
        assert old in settings
        settings = settings.replace(old, new)
    serve = [sys.executable, "-m", "embedwatch", "serve", f"--config.file={written(tmp_path, settings)}"]
    scrape = [
        require("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'data'}",
        f"--web.listen-address=127.0.0.1:{own}",
    ]
    with tmp_path.joinpath("log").open("wb") as log:
        running = [subprocess.Popen(command, stdout=log, stderr=log) for command in (serve, scrape)]
        try:
            poll(lambda: up(own) == "1", deadline=90.0)
            with pytest.raises(urllib.error.HTTPError, match="401"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)
        finally:
            for each in running:
                each.terminate()
            for each in running:
                each.wait(60)


def up(port: int) -> str:
    """Return what Prometheus says of its target."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query=up", timeout=10) as answer:
        (sample,) = json.load(answer)["data"]["result"]
    return str(sample["value"][1])
