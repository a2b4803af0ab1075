"""What looking at attention costs, beside what it costs to keep all of it.

Run: python benchmarks/attention.py [--quick] [--steps 3]

A GPT-2 of random weights, in the shape of the small one, trains on sequences of 512 tokens. Three ways, each in a
process of its own, so that the peak of its memory is its own: alone, with its attention looked at in every step, and
with `output_attentions=True` and statistics of all queries by all keys. Times are processor time of one thread, so that
a busy machine does not decide; what is ours is timed within the same steps.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from embedwatch.core.boundary import Boundary
from embedwatch.course_maker import CourseMaker
from embedwatch.observe.attachment import Attachment
from embedwatch.observe.pulse import Pulse

WAYS = ("alone", "looked at", "all of it")
ROWS = 16
QUITE_ALL = 1000
"""Layers: by default some are watched."""
APART = 50
"""Attention is looked at in one step of so many by default."""
NEAR = 4
TARGET = 0.01
FILE = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Shape:
    """Of a model and its batches."""

    layers: int = 12
    width: int = 768
    heads: int = 12
    vocabulary: int = 50257
    batch: int = 4
    length: int = 512


QUICK = Shape(layers=2, vocabulary=1000, batch=2)


@dataclass
class Cost:
    """Processor seconds of one step on average, and the most memory of the process."""

    step: float = 0.0
    looking: float = 0.0
    statistics: float = 0.0
    peak_megabytes: float = 0.0


def model_of(shape: Shape, implementation: str) -> Any:
    """Return a model without its map to tokens, which would only add to what attention is compared with."""
    config = transformers.GPT2Config(
        n_layer=shape.layers,
        n_embd=shape.width,
        n_head=shape.heads,
        vocab_size=shape.vocabulary,
        n_positions=shape.length,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        attn_implementation=implementation,
    )
    return transformers.GPT2Model(config).train()


def statistics_of_all(attentions: tuple[Tensor, ...]) -> None:
    """Make what would be made of sampled rows: entropy, mass on the first key, near and far, of every query."""
    length = attentions[0].shape[-1]
    distance = (torch.arange(length)[:, None] - torch.arange(length)).abs()
    near = distance <= NEAR
    for weights in attentions:
        held = weights.detach()
        torch.special.entr(held).sum(-1).mean((0, 2))
        held[..., 0].mean((0, 2))
        (held * near).sum(-1).mean((0, 2))
        (held * distance).sum(-1).mean((0, 2))


def measure(way: str, shape: Shape, steps: int) -> Cost:
    """Train for a few steps, the first of them left out."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = model_of(shape, "eager" if way == "all of it" else "sdpa")
    ids = torch.randint(shape.vocabulary, (shape.batch, shape.length))
    cost = Cost()
    pulse = Pulse(every=1)
    pulse.attention_every = 1
    attachment = Attachment(
        model, None, pulse, Boundary(on_error="raise"), rows=ROWS, seed=0, attention=ROWS, attention_layers=QUITE_ALL
    )
    if way == "looked at":
        attachment.attach()
    for step in range(steps + 1):
        looked = sum(site.seconds for site in attachment.attention.sites)
        began = time.process_time()
        output = model(input_ids=ids, output_attentions=way == "all of it")
        middle = time.process_time()
        if way == "all of it":
            with torch.no_grad():
                statistics_of_all(output.attentions)
        made = time.process_time() - middle
        output.last_hidden_state.square().mean().backward()
        model.zero_grad()
        whole = time.process_time() - began
        looking = sum(site.seconds for site in attachment.attention.sites) - looked
        if way == "looked at":
            made = of_rows(attachment)
            whole += made
        if step:
            cost.step += (whole - looking - made) / steps
            cost.looking += looking / steps
            cost.statistics += made / steps
    cost.peak_megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return cost


def of_rows(attachment: Attachment) -> float:
    """Return how long the statistics of a Monitor take for what was seen, which they do beside the model."""
    began = time.process_time()
    for site in attachment.attention.sites:
        for look in site.collect():
            batch = look.rows.finished()
            for statistic in CourseMaker().statistics("attention"):
                statistic.update(batch)
    return time.process_time() - began


def in_a_process(way: str, options: argparse.Namespace) -> Cost:
    """Measure one way where nothing else has taken memory."""
    more = ["--quick"] if options.quick else []
    command = [sys.executable, __file__, "--way", way, "--steps", str(options.steps), *more]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Cost(**json.loads(done.stdout.splitlines()[-1]))


def report(costs: dict[str, Cost], shape: Shape) -> dict[str, Any]:
    """Return what the numbers come to."""
    alone, looked, whole = (costs[way] for way in WAYS)
    share = (looked.looking + looked.statistics) / looked.step
    return {
        "shape": asdict(shape),
        "costs": {way: asdict(cost) for way, cost in costs.items()},
        "armed_step_share": share,
        "armed_step_share_on_the_thread_of_the_model": looked.looking / looked.step,
        "one_step_in_50_share": share / APART,
        "all_of_it_statistics_share": whole.statistics / whole.step,
        "all_of_it_step_over_alone": (whole.step + whole.statistics) / alone.step,
        "looked_at_peak_over_alone": looked.peak_megabytes / alone.peak_megabytes,
        "all_of_it_peak_over_alone": whole.peak_megabytes / alone.peak_megabytes,
        "target": TARGET,
        "within": share / APART < TARGET,
    }


def main() -> None:
    """Measure, print, and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two layers, small batches; nothing is kept")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--way", choices=WAYS, help="one way only, in this process")
    options = parser.parse_args()
    shape = QUICK if options.quick else Shape()
    if options.way:
        print(json.dumps(asdict(measure(options.way, shape, options.steps))))
        return
    found = report({way: in_a_process(way, options) for way in WAYS}, shape)
    now = datetime.now(timezone.utc)
    found |= {"date": now.date().isoformat(), "torch": torch.__version__, "transformers": transformers.__version__}
    found |= {"machine": f"{platform.machine()}, {os.cpu_count()} cores, one thread"}
    print(json.dumps(found, indent=2))
    if not options.quick:
        path = FILE / f"attention-{found['date']}.json"
        path.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
