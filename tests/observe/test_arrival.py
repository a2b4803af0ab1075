"""Numbers that are on their way on a device: waited for by whoever reads them, on the very stream that makes them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from embedwatch.observe.arrival import Arriving, arrival, arriving, wait_for
from embedwatch.observe.pulse import Pulse
from embedwatch.observe.tables import TableWatch, joined_states

needs_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no device that works by itself")


def test_on_the_processor_everything_is_there() -> None:
    value = torch.tensor(2.5)
    assert arriving(value) is value
    assert float(Arriving(value)) == 2.5
    assert arrival(value.device) is None
    wait_for(None)


def test_a_table_is_the_same_once_it_is_here() -> None:
    table = TableWatch("weight", nn.Embedding(20, 4), Pulse(every=1))
    state = table.state()
    here = state.here()
    assert here.event is None
    assert torch.equal(here.norms, state.norms)
    assert torch.equal(joined_states([state, state]).norms, state.norms)


@needs_device
def test_numbers_of_another_stream_are_waited_for() -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        late = arriving(torch.ones((), device="cuda") * 3)
    assert float(late) == 3.0


@needs_device
def test_a_table_of_another_stream_is_waited_for() -> None:
    module = nn.Embedding(5_000, 8).cuda()
    table = TableWatch("weight", module, Pulse(every=1))
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        torch.cuda._sleep(200_000_000)
        module.weight.fill_(1.0)
        state = table.state()
    assert torch.allclose(state.batch().norms, torch.full((5_000,), 8.0**0.5, dtype=torch.float64))
