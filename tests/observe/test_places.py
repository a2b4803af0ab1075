"""Places: what every Transformer has is found by itself, and names, globs and predicates choose others."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor, nn

from embedwatch.core.errors import UsageError
from embedwatch.monitor import watch
from embedwatch.observe.anatomy import TABLES_AT_MOST, VOCABULARY_AT_LEAST
from embedwatch.observe.places import find_places, find_positions, token_embeddings, token_groups, unwrapped
from tests.observe import tiny

USUAL = {
    "albert": "embeddings.word_embeddings:token embeddings:embedding encoder.albert_layer_groups.0:hidden",
    "bart-lm": "model.shared:token model.encoder.embed_tokens:token model.decoder.embed_tokens:token "
    "model.encoder.layers.0.input:embedding model.encoder.layers.0:hidden model.encoder.layers.1:hidden "
    "model.decoder.layers.0.input:embedding model.decoder.layers.0:hidden model.decoder.layers.1:hidden",
    "bert": "embeddings.word_embeddings:token embeddings:embedding encoder.layer.0:hidden encoder.layer.1:hidden "
    "pooler:pooled",
    "bloom": "word_embeddings:token h.0.input:embedding h.0:hidden h.1:hidden ln_f:hidden",
    "clip": "text_model.embeddings.token_embedding:token text_model.embeddings:embedding "
    "text_model.encoder.layers.0:hidden text_model.encoder.layers.1:hidden text_model.final_layer_norm:hidden "
    "vision_model.encoder.layers.0.input:embedding vision_model.encoder.layers.0:hidden "
    "vision_model.encoder.layers.1:hidden vision_model.post_layernorm:hidden",
    "deberta-v2": "embeddings.word_embeddings:token embeddings:embedding encoder.layer.0:hidden encoder.layer.1:hidden",
    "distilbert": "embeddings.word_embeddings:token embeddings:embedding transformer.layer.0:hidden "
    "transformer.layer.1:hidden",
    "falcon": "word_embeddings:token h.0.input:embedding h.0:hidden h.1:hidden ln_f:hidden",
    "funnel": "embeddings.word_embeddings:token embeddings:embedding encoder.blocks.0.0:hidden "
    "encoder.blocks.1.0:hidden decoder.layers.0:hidden decoder.layers.1:hidden",
    "gpt2-lm": "transformer.wte:token transformer.h.0.input:embedding transformer.h.0:hidden transformer.h.1:hidden "
    "transformer.ln_f:hidden",
    "llama-lm": "model.embed_tokens:token model.layers.0.input:embedding model.layers.0:hidden model.layers.1:hidden "
    "model.norm:hidden",
    "llava": "model.language_model.embed_tokens:token model.vision_tower.encoder.layers.0.input:embedding "
    "model.vision_tower.encoder.layers.0:hidden model.vision_tower.encoder.layers.1:hidden "
    "model.vision_tower.post_layernorm:hidden model.language_model.layers.0.input:embedding "
    "model.language_model.layers.0:hidden model.language_model.layers.1:hidden model.language_model.norm:hidden",
    "mixtral": "embed_tokens:token layers.0.input:embedding layers.0:hidden layers.1:hidden norm:hidden",
    "modernbert": "embeddings.tok_embeddings:token embeddings:embedding layers.0:hidden layers.1:hidden "
    "final_norm:hidden",
    "mpnet": "embeddings.word_embeddings:token embeddings:embedding encoder.layer.0:hidden encoder.layer.1:hidden "
    "pooler:pooled",
    "t5-lm": "shared:token encoder.embed_tokens:token decoder.embed_tokens:token encoder.block.0.input:embedding "
    "encoder.block.0:hidden encoder.block.1:hidden encoder.final_layer_norm:hidden decoder.block.0.input:embedding "
    "decoder.block.0:hidden decoder.block.1:hidden decoder.final_layer_norm:hidden",
    "vit": "layers.0.input:embedding layers.0:hidden layers.1:hidden layernorm:hidden pooler:pooled",
    "wav2vec2": "encoder.layers.0.input:embedding encoder.layers.0:hidden encoder.layers.1:hidden",
    "whisper": "decoder.embed_tokens:token encoder.layers.0.input:embedding encoder.layers.0:hidden "
    "encoder.layers.1:hidden encoder.layer_norm:hidden decoder.layers.0.input:embedding decoder.layers.0:hidden "
    "decoder.layers.1:hidden decoder.layer_norm:hidden",
    "own-decoder": "embedding.tokens:token embedding:embedding layers.0:hidden layers.1:hidden norm:hidden",
    "own-encoder_decoder": "embedding.tokens:token encoder.embedding.tokens:token embedding:embedding layers.0:hidden "
    "layers.1:hidden norm:hidden encoder.embedding:embedding encoder.layers.0:hidden encoder.layers.1:hidden "
    "encoder.norm:hidden",
    "torch-encoder": "tokens:token encoder.input:embedding encoder:hidden",
}
SAME = {
    "roberta": "bert",
    "electra": "deberta-v2",
    "own-encoder": "own-decoder",
    "torch-encoder-positions-first": "torch-encoder",
    **dict.fromkeys(("qwen3", "gemma", "gemma2", "gemma3_text", "mistral"), "mixtral"),
}
POSITIONS = {
    "bert": ["embeddings.position_embeddings"],
    "gpt2-lm": ["transformer.wpe"],
    "bart-lm": ["model.encoder.embed_positions", "model.decoder.embed_positions"],
    "own-decoder": ["embedding.positions"],
    "clip": ["text_model.embeddings.position_embedding", "vision_model.embeddings.position_embedding"],
    "llama-lm": [],
}


@pytest.mark.parametrize("kind", [*USUAL, *SAME])
def test_the_usual_places_of_an_architecture(kind: str) -> None:
    expected = USUAL[SAME.get(kind, kind)].split()
    model = tiny.shared(kind)
    found = find_places(model)
    assert [f"{place.name}:{place.role}" for place in found] == expected
    for place in found:
        assert place.module is model.get_submodule(place.path)
        assert place.optional is (place.role == "pooled")


@pytest.mark.parametrize("kind", sorted({*tiny.KINDS, "funnel"} - {"llava"}))
def test_every_usual_place_is_seen(kind: str) -> None:
    model = tiny.shared(kind)
    with tiny.eyes(model) as eyes, torch.no_grad():
        model(**tiny.inputs(kind))
        assert eyes.attachment.blind() == {}
        assert eyes.attachment.expected > 2


@pytest.mark.parametrize("kind", POSITIONS)
def test_what_adds_positions_is_known(kind: str) -> None:
    assert [place.name for place in find_positions(tiny.shared(kind))] == POSITIONS[kind]


@pytest.mark.parametrize("kind", ["bert", "own-decoder", "own-encoder_decoder", "opt"])
def test_what_positions_add_is_what_comes_out_without_what_went_in(kind: str) -> None:
    model, batch = tiny.shared(kind), tiny.inputs(kind)
    place = find_positions(model)[0].name
    entered: list[Any] = []

    def keep(module: nn.Module, args: Any, output: Tensor) -> None:
        entered.append(output - args[0] if args[0].is_floating_point() else output)

    handle = model.get_submodule(place).register_forward_hook(keep)
    with tiny.eyes(model) as eyes, torch.no_grad():
        model(**batch)
        seen = eyes.looks(place)[0]
    handle.remove()
    whole = entered[0].reshape(-1, tiny.D)
    assert all(bool((whole == row).all(1).any()) for row in seen)
    assert len(seen) <= len(whole)
    if len(entered[0]) == 1:
        assert torch.equal(seen, whole)


def test_a_deep_stack_is_seen_at_a_few_depths() -> None:
    model = nn.Module()
    model.tokens = nn.Embedding(50, 8)
    model.layers = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(12))
    assert [place.name for place in find_places(model) if place.role == "hidden"] == [
        "layers.2",
        "layers.5",
        "layers.8",
        "layers.11",
    ]


NAMED: dict[str, tuple[Any, list[str]]] = {
    "a name": (["encoder.layer.0"], ["encoder.layer.0"]),
    "names in their order": (["pooler", "embeddings"], ["pooler", "embeddings"]),
    "a name twice": (["pooler", "pooler"], ["pooler"]),
    "what enters": (["encoder.layer.1.input"], ["encoder.layer.1.input"]),
    "a glob": (["encoder.layer.*"], ["encoder.layer.0", "encoder.layer.1"]),
    "one glob, not in a list": ("encoder.layer.*", ["encoder.layer.0", "encoder.layer.1"]),
    "a glob within a name": (["encoder.la*.1"], ["encoder.layer.1"]),
    "a glob across names": (["**.attention"], ["encoder.layer.0.attention", "encoder.layer.1.attention"]),
    "a name and a glob": (["encoder.layer.1", "encoder.layer.*"], ["encoder.layer.1", "encoder.layer.0"]),
    "a predicate": (
        lambda name, module: isinstance(module, nn.Linear) and name.endswith("output.dense"),
        [f"encoder.layer.{layer}{part}.output.dense" for layer in (0, 1) for part in (".attention", "")],
    ),
}


@pytest.mark.parametrize("given", NAMED)
def test_places_may_be_named(given: str) -> None:
    places, expected = NAMED[given]
    model = tiny.shared("bert")
    assert [place.name for place in find_places(model, places)] == expected
    with tiny.eyes(model, places) as eyes, torch.no_grad():
        model(**tiny.inputs("bert"))
        assert eyes.attachment.blind() == {}
        assert [name for name in eyes.seen() if name in expected] == expected


def test_what_is_named_keeps_its_usual_role() -> None:
    names = ["embeddings.word_embeddings", "embeddings", "encoder.layer.0.attention", "pooler"]
    roles = [place.role for place in find_places(tiny.shared("bert"), names)]
    assert roles == ["token", "embedding", "hidden", "pooled"]


def test_rows_of_a_named_place_are_without_padding_too() -> None:
    model, batch = tiny.shared("bert"), tiny.inputs("bert")
    with tiny.eyes(model, ["**.attention", "encoder.layer.0.input"]) as eyes, torch.no_grad():
        model(**batch)
        for name in ("encoder.layer.0.attention", "encoder.layer.1.attention", "encoder.layer.0.input"):
            assert [len(rows) for rows in eyes.looks(name)] == [sum(tiny.LENGTHS)]


REFUSED: dict[str, tuple[Any, str]] = {
    "close to a name": (["encoder.layer.O"], "did you mean"),
    "like no name": (["nonsense"], r"model\.named_modules\(\)"),
    "a glob of nothing": (["layers.*"], r"got 'layers\.\*'"),
    "a predicate of nothing": (lambda name, module: False, "false for all"),
    "one of several": (["pooler", "poler"], "'poler'"),
    "no names": ([], r"got \[\]; leave it out"),
    "a number": ([0], r"got \[0\]"),
    "a number for all": (3, "got 3"),
    "an empty name": ([""], r"got \[''\]"),
    "a module": ([nn.Linear(1, 1)], "names or globs of modules"),
    "a class": (nn.Linear, "got Linear"),
    "a predicate over names alone": (lambda name: True, "two arguments, got function"),
}


@pytest.mark.parametrize("given", REFUSED)
def test_a_name_that_fits_nothing_is_refused_with_a_hint(given: str) -> None:
    places, words = REFUSED[given]
    with pytest.raises(UsageError, match=words) as caught:
        find_places(tiny.shared("bert"), places)
    assert "\n" not in str(caught.value)
    assert "`places` must" in str(caught.value)


def test_a_model_without_anything_to_find_asks_for_names() -> None:
    model = nn.Sequential(nn.Linear(3, 3))
    with pytest.raises(UsageError, match="name modules with `places`"):
        find_places(model)
    with watch(model, places=["0"], every=1, sinks=[]) as monitor:
        model(torch.ones(2, 3))
        assert monitor.blind() == {}


def test_a_table_alone_is_a_model() -> None:
    model = nn.Embedding(30, 8)
    with watch(model, every=1, sinks=[], on_error="raise") as monitor:
        model(torch.arange(10))
        assert monitor.blind() == {}
        assert [place.role for place in monitor.places] == ["token"]
        assert all(place.name for place in monitor.places)


def test_positions_are_not_taken_for_tokens() -> None:
    model = nn.Module()
    model.wte, model.wpe = nn.Embedding(65, 8), nn.Embedding(256, 8)
    assert list(token_embeddings(model)) == ["wte"]
    vision = tiny.shared("clip").get_submodule("vision_model")
    assert token_embeddings(vision) == {}


class Loose(nn.Module):
    """Torch's own layers in a list of one's own."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(tiny.VOCABULARY, tiny.D)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(tiny.D, 2, 32, batch_first=True) for _ in range(2))
        self.norm = nn.LayerNorm(tiny.D)

    def forward(self, ids: Tensor) -> Tensor:
        rows = self.tokens(ids)
        for layer in self.layers:
            rows = layer(rows)
        output: Tensor = self.norm(rows)
        return output


def test_layers_of_torch_in_a_list_are_left_alone() -> None:
    model = Loose().eval()
    with tiny.eyes(model) as eyes, torch.no_grad():
        model(tiny.numbers(2, 5))
        assert eyes.attachment.blind() == {}
        assert eyes.seen() == ["tokens", "norm"]


def test_wrappers_are_taken_off() -> None:
    model = tiny.shared("bert")
    wrappers: list[Any] = [torch.compile(model, backend="eager"), nn.DataParallel(model)]
    for wrapper in wrappers:
        assert unwrapped(wrapper) is model
        assert unwrapped(nn.DataParallel(wrapper)) is model
    assert unwrapped(model) is model
    around = nn.Sequential(model)
    assert unwrapped(around) is around


class Parts(nn.ModuleDict):
    """A model of given parts, that names nothing."""


class Block(nn.Module):
    """A layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.inner = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, rows: Tensor) -> Tensor:
        output: Tensor = rows + self.inner(self.norm(rows))
        return output


class Other(Block):
    """A layer of another class, as one with experts."""


class Stranger(nn.Module):
    """A layer that has nothing in common with the others but that it is one."""

    def __init__(self) -> None:
        super().__init__()
        self.mixer = nn.Linear(8, 8)


def names_of(model: nn.Module) -> list[list[str]]:
    return [list(group) for group in token_groups(model)]


SHORT = ["pos", "pe", "wpe", "posn", "pos_emb", "pos_embedding", "abs_pos_emb", "position", "positions", "positional"]


@pytest.mark.parametrize("name", SHORT)
def test_positions_are_known_by_short_names_though_there_are_more_of_them(name: str) -> None:
    model = Parts({"table": nn.Embedding(300, 8), name: nn.Embedding(512, 8), "pos_drop": nn.Dropout()})
    assert names_of(model) == [["table"]]
    assert list(token_embeddings(model)) == ["table"]
    assert [place.name for place in find_positions(model)] == [name]


@pytest.mark.parametrize(
    "name", ["types", "type_embed", "token_type", "token_type_embeddings", "segment", "seg_emb", "rel_bias"]
)
def test_segments_and_biases_are_not_taken_for_tokens(name: str) -> None:
    assert names_of(Parts({"a": nn.Embedding(30, 8), name: nn.Embedding(40, 8)})) == [["a"]]


def test_a_table_within_a_module_of_positions_is_one_of_positions() -> None:
    home = type("PositionalEncoding", (Parts,), {})
    both = type("TokenAndPositionEmbedding", (Parts,), {})
    assert names_of(Parts({"a": nn.Embedding(30, 8), "b": home({"table": nn.Embedding(64, 8)})})) == [["a"]]
    assert names_of(Parts({"b": both({"table": nn.Embedding(64, 8)})})) == [["b.table"]]


def test_where_doubt_remains_all_tables_are_taken_and_the_likeliest_comes_first() -> None:
    a, b, tok = nn.Embedding(300, 8), nn.Embedding(512, 8), nn.Embedding(20, 8)
    assert names_of(Parts({"a": a, "b": b})) == [["b"], ["a"]]
    assert names_of(Parts({"a": a, "b": b, "tok": tok})) == [["tok"], ["b"], ["a"]]
    head = nn.Linear(8, 300, bias=False)
    head.weight = a.weight
    assert names_of(Parts({"a": a, "b": b, "tok": tok, "head": head})) == [["a"], ["tok"], ["b"]]
    assert names_of(Parts({"pos": a, "head": head})) == [["pos"]]


def test_each_table_of_several_is_a_place_and_is_seen() -> None:
    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.item, self.user = nn.Embedding(300, 8), nn.Embedding(500, 8)
            self.again = nn.Embedding(300, 8)
            self.again.weight = self.item.weight
            self.flag = nn.Embedding(VOCABULARY_AT_LEAST - 1, 8)

        def forward(self, users: Tensor, items: Tensor) -> Tensor:
            output: Tensor = (self.user(users) * self.item(items)).sum(-1) + self.again(items).sum(-1)
            return output

    model = Recommender()
    assert names_of(model) == [["user"], ["item", "again"]]
    assert [(place.name, place.role) for place in find_places(model)] == [
        ("user", "token"),
        ("item", "token"),
        ("again", "token"),
    ]
    with tiny.eyes(model) as eyes, torch.no_grad():
        model(torch.arange(5), torch.arange(5))
        assert eyes.attachment.blind() == {}
        assert eyes.seen() == ["user", "item", "again"]


def test_source_and_target_have_their_tables() -> None:
    model = Parts(
        {
            "src": nn.Embedding(50, 8),
            "tgt": nn.Embedding(60, 8),
            "pair": nn.Transformer(8, 2, 1, 1, 8, batch_first=True),
        }
    )
    assert names_of(model) == [["tgt"], ["src"]]


def test_only_so_many_tables_are_followed() -> None:
    model = Parts({f"table{rows}": nn.Embedding(rows, 8) for rows in range(10, 20)})
    assert names_of(model) == [[f"table{rows}"] for rows in range(19, 19 - TABLES_AT_MOST, -1)]


def test_a_model_names_its_table_and_further_towers_have_theirs() -> None:
    words = "embeddings.word_embeddings"
    assert names_of(tiny.shared("bert")) == [[words]]
    assert names_of(tiny.shared("clip")) == [["text_model.embeddings.token_embedding"]]
    towers = names_of(tiny.shared("encoder-decoder"))
    assert [group[0].partition(".")[0] for group in towers] == ["encoder", "decoder"]
    listed = nn.Module()
    listed.towers = nn.ModuleList([tiny.build("bert"), tiny.build("bert")])
    assert names_of(listed) == [[f"towers.0.{words}"], [f"towers.1.{words}"]]
    assert [place.name for place in find_places(listed) if place.role == "hidden"] == [
        f"towers.{tower}.encoder.layer.{layer}" for tower in (0, 1) for layer in (0, 1)
    ]


MIXED: dict[str, list[type[nn.Module]]] = {
    "every second": [Block, Other, Block, Other],
    "one replaced": [Block, Block, Stranger, Block],
    "relatives": [Block, Other],
    "strangers": [Block, Stranger],
}


@pytest.mark.parametrize("case", MIXED)
def test_layers_may_be_of_several_classes(case: str) -> None:
    layers = nn.ModuleList(each() for each in MIXED[case])
    model = Parts({"tok": nn.Embedding(50, 8), "blocks": layers, "lm_head": nn.Linear(8, 50)})
    hidden = [place.name for place in find_places(model) if place.role == "hidden"]
    assert hidden[-1] == f"blocks.{len(layers) - 1}"
    assert len(hidden) == len(layers)


def test_heads_stems_and_wholes_are_no_layers() -> None:
    layers = nn.ModuleList(Block() for _ in range(4))
    heads = nn.ModuleList(nn.Sequential(nn.Linear(8, 30), nn.GELU()) for _ in range(3))
    few = nn.ModuleList([Block(), Other()])
    model = Parts({"tok": nn.Embedding(50, 8), "front": few, "blocks": layers, "heads": heads})
    assert [place.name for place in find_places(model) if place.role == "hidden"] == [f"blocks.{i}" for i in range(4)]
    encoder, decoder = Parts({"a": nn.ModuleList([Block(), Block()])}), Stranger()
    whole = Parts({"tok": nn.Embedding(50, 8), "net": nn.Sequential(encoder, decoder)})
    assert [place.name for place in find_places(whole) if place.role == "hidden"] == ["net.0.a.0", "net.0.a.1"]


def test_what_a_bag_gives_is_pooled() -> None:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bag, self.head = nn.EmbeddingBag(50, 8), nn.Linear(8, 2)

        def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
            output: Tensor = self.head(self.bag(ids, offsets))
            return output

    model = Bag()
    assert [(place.name, place.role, place.optional) for place in find_places(model)] == [("bag", "pooled", False)]
    with tiny.eyes(model) as eyes, torch.no_grad():
        model(torch.arange(10), torch.tensor([0, 4, 7]))
        assert eyes.attachment.blind() == {}
        assert torch.equal(eyes.looks("bag")[0], model.bag(torch.arange(10), torch.tensor([0, 4, 7])))


def test_a_pooler_is_left_out_where_something_further_out_pools() -> None:
    pooling = type("Pooling", (Parts,), {})
    alone = nn.Sequential(tiny.build("bert"))
    pooled = nn.Sequential(tiny.build("bert"), pooling())
    assert [place.name for place in find_places(alone) if place.role == "pooled"] == ["0.pooler"]
    assert [place.name for place in find_places(pooled) if place.role == "pooled"] == []
    asked = find_places(pooled, "0.pooler")
    assert [(place.role, place.optional) for place in asked] == [("pooled", False)]


@pytest.mark.parametrize("kind", ["bert", "torch-encoder", "own-encoder_decoder"])
def test_found_places_may_be_named(kind: str) -> None:
    found = find_places(tiny.shared(kind))
    again = find_places(tiny.shared(kind), [place.name for place in found])
    assert [(place.name, place.role, place.module) for place in again] == [
        (place.name, place.role, place.module) for place in found
    ]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_scripted_model_is_refused() -> None:
    scripted = torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2))
    for look in (find_places, unwrapped, watch):
        with pytest.raises(UsageError, match="`model` must be a torch module in Python, got a ScriptModule"):
            look(scripted)


def test_a_norm_with_which_the_first_layer_alone_begins_is_what_enters_it() -> None:
    config = hf.RwkvConfig(vocab_size=tiny.VOCABULARY, hidden_size=tiny.D, num_hidden_layers=2)
    places = {place.role: place.name for place in find_places(hf.RwkvModel(config))}
    assert places["embedding"] == "blocks.0.pre_ln"
