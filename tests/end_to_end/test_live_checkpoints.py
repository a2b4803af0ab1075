"""A folder of checkpoints that a real daemon looks at: what is diagnosed is in Prometheus, and a wrong θ fires."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.dashboards.tools import needs_promtool
from tests.end_to_end.hurried_rules import hurried
from tests.end_to_end.live_daemon import DaemonServer
from tests.loading import tiny
from tests.polling import poll
from tests.prometheus_server import PrometheusServer

pytestmark = pytest.mark.slow

DEADLINE = 90.0
ALERT = 'ALERTS{alertname="EmbedwatchPositionFrequencies",alertstate="firing",model="run",place="positions"}'


def save(folder: Path, *, theta: float) -> None:
    """Write a checkpoint whose stored frequencies are those of θ = 10,000, and whose configuration states another."""
    tiny.save("llama-lm", folder)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = 10_000.0 ** -(torch.arange(0, 8, 2) / 8)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = theta
    (folder / "config.json").write_text(json.dumps(config))


@needs_promtool
def test_a_wrong_base_raises_its_alert_and_the_next_sound_checkpoint_ends_it(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    save(run / "step-100", theta=10_000.0)
    server = DaemonServer(tmp_path, interval="1s")
    source = {"kind": "checkpoints", "path": str(run), "name": "run", "every": "1s"}
    server._write({**server.settings, "sources": [source]})
    with (
        server as daemon,
        PrometheusServer(tmp_path, [daemon.address], rules=[hurried(tmp_path)], interval="500ms") as prometheus,
    ):
        of_run = '{model="run",place="positions",segment="all"}'
        poll(lambda: prometheus.query(f"embedwatch_position_length{of_run}"), deadline=DEADLINE)
        failing = 'embedwatch_check_failing{model="run",check="position_frequencies",severity="fail"}'
        assert prometheus.value(failing) == 0
        save(run / "step-200", theta=500_000.0)
        poll(lambda: prometheus.query(ALERT), deadline=DEADLINE)
        assert prometheus.value(failing) == 1
        save(run / "step-300", theta=10_000.0)
        poll(lambda: not prometheus.query(ALERT), deadline=DEADLINE)
