"""A tiny run: vectors are audited, sound ones and faulty ones, and a tiny model is watched as it learns."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from embedwatch.cli.doctor.findings import Finding
from embedwatch.core.errors import EmbedwatchError

__all__ = ["run_trial"]

PART = "trial"
ROWS, DIMENSION = 2_000, 32
STEPS = 12
BUG = "this is an error of embedwatch or of a package it needs: run it again with --debug, and report it"


def run_trial() -> list[Finding]:
    """Return what each part of the run said; an exception is a finding too."""
    found = []
    for name, part in (("audit", _audit), ("watch", _watch)):
        start = time.perf_counter()
        try:
            finding = part()
        except EmbedwatchError as error:
            finding = Finding(PART, name, "fail", str(error), BUG)
        except Exception as error:  # noqa: BLE001 whatever is wrong here is what the doctor is asked for
            finding = Finding(PART, name, "fail", f"{type(error).__name__}: {error}", BUG)
        found.append(finding._replace(reason=f"{finding.reason}, in {time.perf_counter() - start:.1f} s"))
    return found


def _audit() -> Finding:
    """Judge sound rows, then the same with a NaN among them."""
    import numpy as np

    from embedwatch.auditing import audit

    rows = np.random.default_rng(0).standard_normal((ROWS, DIMENSION), dtype=np.float32)
    with tempfile.TemporaryDirectory(prefix="embedwatch-doctor-") as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, rows)
        sound = audit(path)
        rows[ROWS // 2, 0] = np.nan
        np.save(path, rows)
        faulty = audit(path)
    if sound.errors or sound.status != "ok":
        errors = ", ".join(f"{stage} {name}" for stage, name, _ in sound.errors)
        return Finding(PART, "audit", "fail", f"sound rows were judged {sound.status}; failed: {errors or 'none'}", BUG)
    found = [verdict.check for verdict in faulty.verdicts if verdict.status == "fail"]
    if found != ["nonfinite_rows"]:
        return Finding(PART, "audit", "fail", f"a NaN among the rows was told as {found}", BUG)
    return Finding(PART, "audit", "ok", f"{ROWS:,} sound rows are {sound.counts()['ok']} times ok, and a NaN is found")


def _watch() -> Finding:
    """Watch a tiny decoder on the device that is there."""
    import torch

    from embedwatch.monitor import watch
    from embedwatch_model import ModelConfig, Transformer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Transformer(ModelConfig(vocabulary=64, d_model=DIMENSION, layers=2, heads=2, length=16)).to(device)
        ids = torch.randint(64, (8, 17), device=device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        with watch(model, every=2, window=STEPS // 2, budget=None, attention=0, sinks=[]) as monitor:
            for _ in range(STEPS):
                logits = model(ids[:, :-1]).logits.transpose(1, 2)
                loss = torch.nn.functional.cross_entropy(logits, ids[:, 1:])
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                monitor.step(loss=loss)
    if monitor.errors or monitor.blind():
        told = f"errors {monitor.errors or 'none'}, places not seen {monitor.blind() or 'none'}"
        return Finding(PART, "watch", "fail", told, BUG)
    places = len(monitor.places)
    return Finding(PART, "watch", "ok", f"a tiny model on {device}: {places} places seen over {STEPS} steps")
