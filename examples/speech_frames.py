"""Frames of speech are vectors like tokens: the encoder of Whisper is watched at work, and its frames are audited.

python examples/speech_frames.py                       a tiny random encoder, and one that broke: seconds
python examples/speech_frames.py --model DIR           a trained Whisper of transformers, with the same sounds

The sounds are made here: voices that glide between vowels. Watched are the layers and their attention as it serves;
then its frames, and its table of positions, are judged.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers.models.whisper.modeling_whisper import WhisperEncoder

import embedwatch
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.loading.live import LiveSubject

RATE, HOP, WINDOW = 16_000, 160, 400
VOWELS = ((730, 1090), (270, 2290), (300, 870), (530, 1840))
"""First and second formant of a, i, u, e, in hertz (Peterson & Barney 1952)."""


def tiny_encoder() -> Any:
    """Return the encoder of a Whisper for two seconds of sound, as it was drawn."""
    config = transformers.WhisperConfig(
        d_model=64,
        encoder_layers=3,
        encoder_attention_heads=4,
        encoder_ffn_dim=128,
        num_mel_bins=40,
        max_source_positions=100,
    )
    torch.manual_seed(0)
    return WhisperEncoder(config)


def voices(seed: int, seconds: float, count: int) -> Tensor:
    """Return sounds of voices that glide from vowel to vowel. Shape: (B, samples)."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.arange(int(seconds * RATE)) / RATE
    sounds = []
    for _ in range(count):
        pitch = 100 + 120 * torch.rand(1, generator=generator)
        course = torch.randint(len(VOWELS), (max(2, int(3 * seconds)),), generator=generator)
        formants = torch.tensor([VOWELS[vowel] for vowel in course.tolist()], dtype=torch.float32).T[None]  # (1, 2, V)
        glide = nn.functional.interpolate(formants, size=len(times), mode="linear")[0]  # (2, samples)
        harmonics = torch.arange(1, 30)[:, None] * pitch  # (29, 1)
        loud = sum(torch.exp(-(((harmonics - glide[each]) / 150) ** 2)) for each in range(2))
        sound = (loud * torch.sin(2 * torch.pi * harmonics * times)).sum(0)
        sounds.append(sound / sound.abs().max() + 0.01 * torch.randn(len(times), generator=generator))
    return torch.stack(sounds)


def mel(sounds: Tensor, bins: int) -> Tensor:
    """Return log mel spectra, as Whisper takes them. Shape: (B, samples) -> (B, bins, frames)."""
    power = torch.stft(sounds, WINDOW, HOP, window=torch.hann_window(WINDOW), return_complex=True).abs()[..., :-1] ** 2
    hertz = torch.linspace(0, RATE / 2, power.shape[1])
    edges = 700 * (10 ** (torch.linspace(0, 2840, bins + 2) / 2595) - 1)
    rise = (hertz - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    fall = (edges[2:, None] - hertz) / (edges[2:] - edges[1:-1])[:, None]
    logs = (torch.minimum(rise, fall).clamp(min=0) @ power).clamp(min=1e-10).log10()  # (B, bins, frames)
    return (torch.maximum(logs, logs.amax((1, 2), keepdim=True) - 8) + 4) / 4


def spectra(model: Any, *, seed: int, count: int) -> Tensor:
    """Return spectra of as much sound as the encoder takes."""
    seconds = 2 * model.config.max_source_positions * HOP / RATE
    return mel(voices(seed, seconds, count), model.config.num_mel_bins)


@torch.no_grad()
def serve(model: Any, *, passes: int, count: int = 4) -> tuple[embedwatch.Monitor, Tensor]:
    """Let the encoder read sounds while it is watched; return what watched it, and the frames. Shape: (N, D)."""
    model.eval()
    with embedwatch.watch(model, every=1, window=passes, attention_every=1, sinks=[]) as monitor:
        frames = [model(spectra(model, seed=seed, count=count)).last_hidden_state for seed in range(passes)]
    return monitor, torch.cat(frames).flatten(0, 1)


def broken(model: Any) -> Any:
    """Return a copy whose last normalisation lost its gains, as in a conversion."""
    copied: Any = copy.deepcopy(model)
    nn.init.zeros_(copied.layer_norm.weight)
    return copied


def report(title: str, model: Any, *, passes: int) -> None:
    """Watch, audit, and look at positions."""
    monitor, frames = serve(model, passes=passes)
    print(f"{title}: {monitor}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "frames.npy")
        np.save(path, frames.numpy())
        found = embedwatch.audit(path)
    spaces = [*found.spaces, *diagnose(Inquiry(LiveSubject(model, label=title)), places=("positions", "layers"))]
    for judged in spaces:
        verdicts = judged.verdicts
        sound = sum(verdict.status == "ok" for verdict in verdicts)
        print(f"  {judged.snapshot.space}: {sound} of {len(verdicts)} ok")
        for verdict in verdicts:
            if verdict.status in ("warn", "fail"):
                print(f"    {verdict.status} {verdict.title}: {verdict.reason}")


def main() -> None:
    """Report on a model, and on one that broke."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--model", help="folder of a trained Whisper")
    parser.add_argument("--passes", type=int, default=6)
    options = parser.parse_args()
    if options.model:
        report("whisper", transformers.WhisperModel.from_pretrained(options.model).encoder, passes=options.passes)
        return
    model = tiny_encoder()
    report("encoder", model, passes=options.passes)
    report("broken", broken(model), passes=options.passes)


if __name__ == "__main__":
    main()
