"""Inside real models every layer is sound, and a planted collapse is found: what checks make of the role of a place."""

from __future__ import annotations

import runpy
import sysconfig
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core import Check, Snapshot, Space, Statistic
from embedwatch.core.registry import registered
from embedwatch.judging import Judge
from embedwatch.window import Window
from embedwatch_model import ModelConfig, Transformer

pytestmark = pytest.mark.real
EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "stdlib_sentences.py"))
MEASURED = ("dimensions", "distinct_rows", "duplicates", "mean_cosine", "norms", "spectrum", "validity")
VOCABULARY, WIDTH, LAYERS = 5_000, 256, 4
FEW = 256
STORED_ONLY = {"duplicate_rows", "groups_apart", "collapse", "rank_collapse"}
HIDDEN = ("hidden_collapse", "hidden_rank_collapse")
States = dict[str, Tensor]
"""Place to rows; `token` is what comes out of the table, `0` what enters the first layer."""


@lru_cache
def texts(sentences: int = 60, paragraphs: int = 16) -> list[str]:
    """Real sentences, and whole docstrings of up to about 200 tokens."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    found = [text for file in files for text in EXAMPLE["docstrings"](file)]
    short = list(filter(None, dict.fromkeys(map(EXAMPLE["first_sentence"], found))))
    long = [" ".join(text.split()) for text in found if 60 <= len(text.split()) <= 140]
    return [*EXAMPLE["spread"](short, sentences), *EXAMPLE["spread"](long, paragraphs)]


def watch(model: Any, encoded: list[Tensor]) -> States:
    """Return the vectors of all tokens of some texts, one text at a time, so that nothing is padded."""
    seen: dict[str, list[Tensor]] = {}
    model.eval()
    tokens = model.get_input_embeddings()
    hook = tokens.register_forward_hook(lambda _m, _i, out: seen.setdefault("token", []).append(out[0]))
    with torch.no_grad():
        for ids in encoded:
            for place, rows in enumerate(model(ids[None], output_hidden_states=True).hidden_states):
                seen.setdefault(str(place), []).append(rows[0])
    hook.remove()
    return {place: torch.cat(parts).float() for place, parts in seen.items()}


def watch_folder(folder: Path) -> States:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32)
    return watch(model, [tokenizer(text, return_tensors="pt")["input_ids"][0] for text in texts()])


def role(place: str) -> str:
    return {"token": "token", "0": "embedding"}.get(place, "hidden")


def measured(rows: Tensor, place: str) -> Snapshot:
    window = Window([registered(Statistic)[name]() for name in MEASURED])
    for batch in VectorBatch(rows, torch.arange(len(rows)), source=place).split((len(rows) // 2, -(-len(rows) // 2))):
        window.update(batch)
    return window.snapshot(Space("model", place), role=role(place))


def judged(rows: Tensor, place: str) -> dict[str, str]:
    """Status of every check that applies."""
    verdicts = Judge([check() for check in registered(Check).values()]).judge(measured(rows, place))
    return {verdict.check: verdict.status for verdict in verdicts}


def sample(rows: Tensor) -> Tensor:
    return rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:FEW]]


def sound(states: States) -> None:
    """Require that every place is sound, and that a small sample of it raises no alarm."""
    for place, rows in states.items():
        found = judged(rows, place)
        assert {name: status for name, status in found.items() if status != "ok"} == {}, place
        assert STORED_ONLY.isdisjoint(found)
        asked = HIDDEN[:1] if role(place) == "token" else HIDDEN
        assert found.keys() >= {"zero_rows", "nonfinite_rows", "dead_dimensions", *asked}
        assert {"warn", "fail"}.isdisjoint(judged(sample(rows), place).values()), place


@pytest.fixture(scope="module")
def minilm_states(minilm: Path) -> States:
    return watch_folder(minilm)


def test_every_layer_of_minilm_is_sound(minilm_states: States) -> None:
    assert len(minilm_states) == 8
    sound(minilm_states)


@pytest.mark.slow
def test_every_layer_of_e5_is_sound(e5: Path) -> None:
    sound(watch_folder(e5))


@pytest.mark.slow
def test_every_layer_of_smollm2_is_sound_with_its_massive_activations(smollm2: Path) -> None:
    states = watch_folder(smollm2)
    norms, scale = (
        measured(states["15"], "15").number(name) for name in ("norm_extreme_ratio", "dimension_scale_ratio")
    )
    assert norms is not None
    assert scale is not None
    assert norms > 50  # they are there
    assert scale > 100
    sound(states)


def ids() -> list[Tensor]:
    """Texts of 5 to 200 tokens, each as often as in a language: the n-th most frequent in proportion to 1 / n.

    None is the token 0, which BERT pads with and keeps at zero.
    """
    generator = torch.Generator().manual_seed(0)
    often = 1 / torch.arange(1, VOCABULARY).float()
    lengths = torch.randint(5, 200, (24,), generator=generator).tolist()
    return [1 + torch.multinomial(often, length, replacement=True, generator=generator) for length in lengths]


RANDOM: dict[str, Callable[[], Any]] = {
    "gpt2": lambda: transformers.GPT2Model(
        transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=4)
    ),
    "bert": lambda: transformers.BertModel(
        transformers.BertConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            intermediate_size=4 * WIDTH,
        )
    ),
    "llama": lambda: transformers.LlamaModel(
        transformers.LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=WIDTH,
            num_hidden_layers=LAYERS,
            num_attention_heads=4,
            intermediate_size=2 * WIDTH,
        )
    ),
}


@pytest.mark.parametrize("name", RANDOM)
def test_every_layer_of_a_model_before_its_first_step_is_sound(name: str) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = RANDOM[name]()
    sound(watch(model, ids()))


def test_our_own_model_before_its_first_step_is_sound() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Transformer(ModelConfig.sized("tiny", vocabulary=VOCABULARY)).eval()
    seen: dict[str, list[Tensor]] = {}
    places = {"token": model.embedding.tokens, "0": model.embedding, "1": model.layers[0], "2": model.layers[1]}
    for place, module in places.items():
        module.register_forward_hook(lambda _m, _i, out, place=place: seen.setdefault(place, []).append(out[0]))
    with torch.no_grad():
        for text in ids():
            model(text[None])
    sound({place: torch.cat(parts) for place, parts in seen.items()})


def noise(rows: Tensor) -> Tensor:
    return torch.randn(rows.shape, generator=torch.Generator().manual_seed(1))


def same_vector(rows: Tensor, *, spread: float) -> Tensor:
    typical = rows[int((rows.norm(dim=1) - rows.norm(dim=1).median()).abs().argmin())]
    return typical + spread * typical.square().mean().sqrt() * noise(rows)


def few_directions(rows: Tensor, rank: int) -> Tensor:
    """Project on directions drawn at random, with a little noise."""
    generator = torch.Generator().manual_seed(2)
    down, up = (torch.randn(rows.shape[1], rank, generator=generator) for _ in range(2))
    low = (rows - rows.mean(0)) @ down @ up.T
    return low + 0.01 * low.std(0) * noise(rows)


def offset(rows: Tensor, factor: float) -> Tensor:
    return rows + factor * rows.std(0) * torch.sign(noise(rows)[0])


PLANTED: dict[str, tuple[str, Callable[[Tensor], Tensor]]] = {
    "one vector and 1 % of noise": ("hidden_collapse", lambda rows: same_vector(rows, spread=0.01)),
    "one vector and 0.1 % of noise": ("hidden_collapse", lambda rows: same_vector(rows, spread=0.001)),
    "a constant vector of 10 times the spread": ("hidden_collapse", lambda rows: offset(rows, 10)),
    "rank 1": ("hidden_rank_collapse", lambda rows: few_directions(rows, 1)),
    "rank 4": ("hidden_rank_collapse", lambda rows: few_directions(rows, 4)),
}


@pytest.mark.parametrize("fault", PLANTED)
@pytest.mark.parametrize("few", [False, True], ids=["all rows", "256 rows"])
def test_a_planted_collapse_is_found_at_every_layer(minilm_states: States, fault: str, few: bool) -> None:
    check, plant = PLANTED[fault]
    for place in ("1", "3", "5", "6"):
        rows = minilm_states[place]
        assert judged(plant(sample(rows) if few else rows), place)[check] == "fail", place


def test_drawn_to_their_mean_by_95_percent_where_there_is_a_mean(minilm_states: States) -> None:
    """A layer whose rows have next to no mean becomes shorter and nothing else; the last but one has one."""
    rows = minilm_states["5"]
    assert judged(rows.mean(0) + 0.05 * (rows - rows.mean(0)), "5")["hidden_collapse"] in ("warn", "fail")
