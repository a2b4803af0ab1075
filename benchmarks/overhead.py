"""What watching costs: our own processor time over the rest of the same steps.

Run: python benchmarks/overhead.py [--steps 200] [--only gpt2-small-training ...]

Real architectures with random weights, watched at the defaults (sinks in memory). Ours is the processor time of hooks,
of what is done at the end of each step, and of the evaluator thread, with its full windows; the rest is the processor
time of the whole process without ours. Both come from the same run, on one thread of BLAS, so that a busy machine and
its caches do not decide. The examination of the table at the start, done once, stands apart.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone

import torch
import transformers
from torch import Tensor, nn

from embedwatch.monitor import watch
from embedwatch.sinks.memory import Memory

TARGET = 0.01
RATE = 1e-4


@dataclass(frozen=True)
class Work:
    """A model and what is done with it, again and again."""

    model: nn.Module
    step: Callable[[], None]


def gpt2_small_training() -> Work:
    """GPT-2 small: 12 layers, 768 dimensions, 50,257 tokens; batches of 4 × 128 tokens."""
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
    return Work(model, _training(model, lambda: _tokens(50257, 4, 128)))


def minilm_training() -> Work:
    """MiniLM's shape: 6 layers, 384 dimensions, 30,522 tokens; batches of 16 × 64 tokens, a tenth of it padding."""
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    model = transformers.BertForMaskedLM(config)
    return Work(model, _training(model, lambda: _padded(30522, 16, 64)))


def minilm_serving() -> Work:
    """MiniLM's shape, one text of 24 tokens in each forward pass."""
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    model = transformers.BertModel(config).eval()
    return Work(model, _serving(model, lambda: _padded(30522, 1, 24)))


def minilm_serving_batches() -> Work:
    """MiniLM's shape, 32 texts of 64 tokens in each forward pass."""
    config = transformers.BertConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536
    )
    model = transformers.BertModel(config).eval()
    return Work(model, _serving(model, lambda: _padded(30522, 32, 64)))


WORKS = {
    "gpt2-small-training": gpt2_small_training,
    "minilm-training": minilm_training,
    "minilm-serving": minilm_serving,
    "minilm-serving-batches": minilm_serving_batches,
}


def _tokens(vocabulary: int, batch: int, length: int) -> dict[str, Tensor]:
    ids = (torch.rand(batch, length) ** 4 * vocabulary).long()  # a few tokens are frequent
    return {"input_ids": ids}


def _padded(vocabulary: int, batch: int, length: int) -> dict[str, Tensor]:
    mask = torch.ones(batch, length, dtype=torch.long)
    mask[batch // 2 :, -length // 5 :] = 0
    return {**_tokens(vocabulary, batch, length), "attention_mask": mask}


def _training(model: nn.Module, inputs: Callable[[], dict[str, Tensor]]) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)

    def step() -> None:
        batch = inputs()
        model(**batch, labels=batch["input_ids"]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def _serving(model: nn.Module, inputs: Callable[[], dict[str, Tensor]]) -> Callable[[], None]:
    def step() -> None:
        with torch.inference_mode():
            model(**inputs())

    return step


def measure(make: Callable[[], Work], steps: int, seconds: float) -> dict[str, object]:
    """Watch some work for so many steps, or until the time is over, and compare."""
    torch.manual_seed(0)
    work = make()
    monitor = watch(work.model, sinks=[Memory()])
    work.step()
    monitor.flush()  # the start is over
    examined = monitor.seconds
    began, cpu, wall, done = time.perf_counter(), time.process_time(), examined, 0
    while done < steps or time.perf_counter() - began < seconds:
        work.step()
        done += 1
    monitor.flush()
    total = time.process_time() - cpu
    ours = monitor.seconds - wall
    result = {
        "steps": done,
        "windows": monitor.windows,
        "places": len(monitor.places),
        "step_seconds": (total - ours) / done,
        "our_seconds_a_step": ours / done,
        "overhead_ratio": ours / (total - ours),
        "interval_at_end": monitor.pulse.every,
        "start_seconds": examined,
        "memory_megabytes": monitor.memory() / 2**20,
        "errors": sum(monitor.errors.values()),
    }
    monitor.detach()
    return result


def main() -> None:
    """Run and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200, help="steps at least")
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds at least")
    parser.add_argument("--only", nargs="*", choices=list(WORKS), default=list(WORKS))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    facts = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "torch": torch.__version__.split("+")[0],
        "transformers": transformers.__version__,
    }
    found = {name: measure(WORKS[name], arguments.steps, arguments.seconds) for name in arguments.only}
    print(json.dumps({**facts, "target": TARGET, "works": found}, indent=2))


if __name__ == "__main__":
    main()
