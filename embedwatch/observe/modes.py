"""What a model runs in is not what we compute in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["outside_modes"]


@contextmanager
def outside_modes() -> Iterator[None]:
    """Leave inference mode, record no gradients, and make tensors on the CPU where nothing else is said.

    What is made here can be used and updated anywhere.
    """
    with torch.inference_mode(mode=False), torch.no_grad(), torch.device("cpu"):
        yield
