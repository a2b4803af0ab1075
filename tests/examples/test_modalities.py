"""The examples of other modalities: patches of images and frames of speech are watched and audited like tokens."""

from __future__ import annotations

import re
import sys

import pytest
import torch

from examples import speech_frames, vision_patches
from tests.quiet import quiet_transformers


def test_patches_are_watched_while_a_vit_learns_and_then_audited(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["vision_patches.py", "--steps", "6"])
    with quiet_transformers():
        vision_patches.main()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("positions, drawn:   across ")
    assert lines[1].startswith("Monitor(ViTModel: 8 of 8 places seen, step 6, detached")
    assert [line.split()[0] for line in lines[2:5]] == [f"layers.{layer}.attention" for layer in range(3)]
    assert any(line == "audit of 2,048 patches: 9 ok" for line in lines), lines


def test_the_grid_of_a_vit_is_known_where_it_is_planted() -> None:
    with quiet_transformers():
        model = vision_patches.tiny_vit()
    side = vision_patches.CELLS
    rows = torch.arange(side, dtype=torch.float32)
    waves = torch.cat([torch.sin(rows[:, None] / 3 + torch.arange(16)), torch.cos(rows[:, None] / 3)], 1)
    table = torch.cat([waves[:, None].expand(-1, side, -1), waves[None].expand(side, -1, -1)], 2)  # (side, side, 34)
    with torch.no_grad():
        model.embeddings.position_embeddings.zero_()
        model.embeddings.position_embeddings[0, 1:, :34] = table.flatten(0, 1)
    grid = vision_patches.grid_of(model)
    assert grid.axes == pytest.approx(1.0)
    assert min(grid.across, grid.down) > 0.7 > grid.wrap


def test_frames_are_watched_and_a_broken_encoder_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["speech_frames.py", "--passes", "2"])
    with quiet_transformers():
        speech_frames.main()
    sound, broken = capsys.readouterr().out.split("broken: ")
    assert sound.startswith("encoder: Monitor(WhisperEncoder: 8 of 8 places seen, step ")
    assert "fail" not in sound.partition("\n")[2]
    (found,) = re.findall(r"encoder/positions: (\d+) of (\d+) ok", sound)
    assert found[0] == found[1] != "0"
    assert "fail zero rows: 800" in broken
    assert "fail dimensions taken out by a normalisation" in broken


def test_spectra_have_the_form_that_whisper_takes() -> None:
    sounds = speech_frames.voices(0, 2.0, 2)
    assert sounds.shape == (2, 32_000)
    found = speech_frames.mel(sounds, 40)
    assert found.shape == (2, 40, 200)
    assert found.isfinite().all()
