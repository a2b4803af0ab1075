"""Time and memory of a training step as a ratio to an equally sized GPT-2 of Hugging Face.

Run: python benchmarks/train_step.py [--layers 4] [--rounds 12]

Both models have learned positions, pre-LayerNorm, GELU, biases, tied tables, the same widths and dropout rates, and
train with the same AdamW on the same tokens. Their steps alternate in one process, so that a busy machine slows both;
process CPU time, medians. Peak memory is that of one process each, above what it holds after importing everything.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

from embedwatch_model.config import ModelConfig
from embedwatch_model.objectives import causal, cross_entropy
from embedwatch_model.optimizer import adamw, clip_by_global_norm
from embedwatch_model.transformer import Transformer

VOCABULARY = 4096
WIDTH_PER_LAYER = 64
WARM_UP = 3
TARGET = 1.0

Step = Callable[[], None]


def ours(layers: int, length: int, tokens: torch.Tensor) -> tuple[nn.Module, Step]:
    """Return our model and a function that trains it for a step."""
    settings = {"positions": "learned", "length": length, "dropout": 0.1, "attention_dropout": 0.1}
    model = Transformer(ModelConfig.sized(layers, vocabulary=VOCABULARY, scaled=False, **settings))
    optimizer = adamw(model, rate=1e-3)
    batch = causal(tokens)

    def step() -> None:
        loss = cross_entropy(model(batch.ids).logits, batch.targets)
        (loss.total / loss.number).backward()
        finish(model, optimizer)

    return model, step


def theirs(layers: int, length: int, tokens: torch.Tensor) -> tuple[nn.Module, Step]:
    """Return the GPT-2 and a function that trains it for a step."""
    width = WIDTH_PER_LAYER * layers
    config = GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=length,
        n_embd=width,
        n_layer=layers,
        n_head=layers,
        bos_token_id=None,
        eos_token_id=None,
    )
    config.activation_function = "gelu"
    model = GPT2LMHeadModel(config).train()
    optimizer = adamw(model, rate=1e-3)
    ids, targets = tokens[:, :-1], tokens[:, 1:]

    def step() -> None:
        logits = model(input_ids=ids, use_cache=False).logits
        nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        finish(model, optimizer)

    return model, step


def finish(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Clip and move."""
    clip_by_global_norm(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)


def measure(steps: list[Step], rounds: int) -> list[float]:
    """Return the median CPU time of each, taken in turn."""
    times: list[list[float]] = [[] for _ in steps]
    for number in range(rounds + WARM_UP):
        for step, record in zip(steps, times, strict=True):
            begin = time.process_time()
            step()
            if number >= WARM_UP:
                record.append(time.process_time() - begin)
    return [statistics.median(record) for record in times]


def peak(which: str, arguments: argparse.Namespace) -> float:
    """Return the peak memory in MiB that training one of them adds to a fresh process."""
    options = [f"--{name}={getattr(arguments, name)}" for name in ("layers", "batch", "length", "threads")]
    command = [sys.executable, __file__, "--memory", which, *options]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def megabytes(field: str) -> float:
    """Return a memory field of this process (Linux): VmRSS now, VmHWM at most."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def main() -> None:
    """Run and print a JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4, help="D is 64 times as much, heads are of 64")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", choices=["ours", "theirs"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    tokens = torch.randint(4, VOCABULARY, (arguments.batch, arguments.length + 1))
    if arguments.memory:
        before = megabytes("VmRSS")
        _, step = {"ours": ours, "theirs": theirs}[arguments.memory](arguments.layers, arguments.length, tokens)
        measure([step], 2)
        print(megabytes("VmHWM") - before)
        return
    (mine, my_step), (other, other_step) = (make(arguments.layers, arguments.length, tokens) for make in (ours, theirs))
    seconds = measure([my_step, other_step], arguments.rounds)
    memory = [peak(which, arguments) for which in ("ours", "theirs")]
    result = {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "machine": platform.machine(),
        "torch": torch.__version__.split("+")[0],
        "threads": arguments.threads,
        "layers": arguments.layers,
        "tokens_per_step": arguments.batch * arguments.length,
        "parameters": [sum(p.numel() for p in model.parameters()) for model in (mine, other)],
        "cpu_seconds_per_step": [round(value, 4) for value in seconds],
        "ratio": round(seconds[0] / seconds[1], 3),
        "target": TARGET,
        "peak_megabytes": [round(value, 1) for value in memory],
        "memory_ratio": round(memory[0] / memory[1], 3),
    }
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
