"""Attention of a loaded model on texts: what is planted in a layer or a head is found there, and named."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from embedwatch.attention_study import AttentionStudy, parse_heads, study_attention
from embedwatch.attention_words import Head, summary
from embedwatch.core.boundary import Boundary
from embedwatch.core.errors import InputError, UsageError
from embedwatch.loading.live import LiveSubject
from embedwatch.observe.resting import beside_work
from tests.loading import tiny
from tests.quiet import quiet_transformers

HEAD = 8
"""K of the tiny BERT, which has two heads a layer."""
TEXTS = tiny.texts(60, 19)


@pytest.fixture(scope="module", autouse=True)
def _silent() -> Iterator[None]:
    with quiet_transformers():
        yield


def bert(change: Callable[[Any], None] = lambda attention: None, *, layer: int = 1) -> LiveSubject:
    """Return a BERT that looks trained, since its gains and biases are none of a new model; one layer is changed."""
    model = tiny.build("bert")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.ndim == 1:
                weight.add_(0.2 * torch.randn(weight.shape, generator=generator))
            elif name.endswith(("query.weight", "key.weight")):
                weight.mul_(12)  # heads that look somewhere
        change(model.encoder.layer[layer].attention.self)
    return LiveSubject(model, tokenizer=tiny.tokenizer(), label="bert")


def study(subject: LiveSubject, **asked: Any) -> AttentionStudy:
    found = study_attention(subject, TEXTS, boundary=Boundary(on_error="raise"), **asked)
    assert found is not None
    return found


def faults(found: AttentionStudy) -> list[dict[str, str]]:
    return [
        {verdict.check: verdict.status for verdict in judged.verdicts if verdict.status in ("warn", "fail")}
        for judged in found.layers
    ]


@pytest.fixture(scope="module")
def sound() -> AttentionStudy:
    return study(bert())


def test_every_layer_is_judged_by_the_checks_of_live_models(sound: AttentionStudy) -> None:
    assert faults(sound) == [{}, {}]
    assert [judged.snapshot.space.place for judged in sound.layers] == [
        "encoder.layer.0.attention.self",
        "encoder.layer.1.attention.self",
    ]
    for judged in sound.layers:
        assert judged.snapshot.provenance.role == "attention"
        assert len(judged.verdicts) >= 8
        assert all(verdict.status == "ok" for verdict in judged.verdicts)
        assert not any(m.labels.get("heads", "").isdigit() for m in judged.snapshot)  # heads stand in the table
    assert [head.name for head in sound.heads] == ["0.0", "0.1", "1.0", "1.1"]
    assert "2 of 2 layers are sound." in sound.overview.snapshot.provenance.notes
    table = sound.overview.exhibits[0]
    assert table.name == "attention_heads_table"
    assert len(table.rows) == 4
    assert sound.grave == [sound.overview]


def _diffuse(attention: Any) -> None:
    attention.query.weight.zero_()
    attention.query.bias.zero_()


def _twins(attention: Any) -> None:
    for part in (attention.query, attention.key):
        part.weight[HEAD:] = part.weight[:HEAD]
        part.bias[HEAD:] = part.bias[:HEAD]


def _dead(attention: Any) -> None:
    attention.value.weight[HEAD:] = 0
    attention.value.bias[HEAD:] = 0


@pytest.mark.parametrize(
    ("plant", "check", "status", "words"),
    [
        (_diffuse, "attention_uniform", "fail", "Too diffuse: 2 of 4 heads"),
        (_twins, "attention_twin_heads", "fail", "Redundant: 2 of 4 heads"),
        (_dead, "attention_dead_heads", "fail", "Dead: 1 of 4 heads"),
    ],
)
def test_a_planted_fault_is_found_in_its_layer_and_its_heads(
    plant: Callable[[Any], None], check: str, status: str, words: str
) -> None:
    found = study(bert(plant))
    first, second = faults(found)
    assert first == {}
    assert second[check] == status
    notes = found.overview.snapshot.provenance.notes
    assert "1 of 2 layers are sound." in notes
    assert any(note.startswith("Layer 1 (encoder.layer.1.attention.self): ") for note in notes)
    (said,) = [note for note in notes if note.startswith(words)]
    assert "1.1 (" in said
    assert "0.0" not in said.partition(": ")[2].partition(": ")[2]
    assert found.grave == [found.overview, found.layers[1]]


def test_a_head_that_sees_its_own_token_alone_is_on_the_diagonal() -> None:
    width = 64
    model = tiny._of("BertModel", **{**tiny.SIZES, "hidden_size": width, "num_attention_heads": 1}).eval()
    with torch.no_grad():
        model.embeddings.word_embeddings.weight.copy_(5 * torch.eye(width)[: tiny.VOCABULARY])
        model.embeddings.position_embeddings.weight.zero_()
        first = model.encoder.layer[0].attention.self
        for part in (first.query, first.key):  # tokens that are all different have nothing in common
            part.weight.copy_(2 * torch.eye(width))
            part.bias.zero_()
    subject = LiveSubject(model, tokenizer=tiny.tokenizer())
    texts = [" ".join(f"w{(7 * place + turn) % 50}" for place in range(48)) for turn in range(8)]
    found = study_attention(subject, texts, length=50, boundary=Boundary(on_error="raise"))
    assert found is not None
    assert faults(found)[0]["attention_diagonal"] == "fail"
    assert any(note.startswith("Diagonal only: 1 of 2 heads") for note in found.overview.snapshot.provenance.notes)
    assert list(found.heads[0].traits()) == ["too concentrated", "diagonal only"]


def test_a_saturated_softmax_is_too_concentrated() -> None:
    def saturate(attention: Any) -> None:
        attention.query.weight.mul_(100)

    found = study(bert(saturate))
    assert faults(found)[1]["attention_collapse"] == "fail"
    assert any(note.startswith("Too concentrated: ") for note in found.overview.snapshot.provenance.notes)


def test_a_map_is_the_softmax_of_its_head() -> None:
    subject = bert()
    length = 24
    found = study(subject, heads=[(1, 0)], length=length)
    (exhibit,) = found.overview.exhibits[1:]
    assert (exhibit.name, exhibit.shape) == ("attention_head_1_0", "matrix")
    assert exhibit.columns == ("query", "key", "query_token", "key_token", "attention")
    # what was read: texts that were joined, as far as the model takes them
    text = "\n".join(TEXTS)
    ids = [*tiny.tokenizer()(text)["input_ids"][: length - 1], 3]
    with torch.no_grad():
        model: Any = subject.model
        model.set_attn_implementation("eager")
        expected = model(torch.tensor([ids]), output_attentions=True).attentions[1][0, 0]
    assert len(exhibit.rows) == len(expected) ** 2
    for query, key, query_token, key_token, share in exhibit.rows:
        assert share == pytest.approx(float(expected[query, key]), abs=1e-4)
        assert (query_token, key_token) == tuple(tiny.tokenizer().convert_ids_to_tokens([ids[query], ids[key]]))  # type: ignore[index]


def test_a_new_model_may_look_everywhere_alike() -> None:
    found = study(LiveSubject(tiny.build("bert"), tokenizer=tiny.tokenizer()))
    assert faults(found) == [{}, {}]
    assert any("as it was drawn" in note for note in found.overview.snapshot.provenance.notes)
    assert all("too diffuse" in head.traits() for head in found.heads)


def test_nothing_hangs_on_the_model_and_none_at_work_is_run() -> None:
    subject = bert()
    called: list[str] = []
    handle = subject.model.register_forward_hook(lambda *call: called.append("forward"))
    study(subject)
    assert called == []  # what runs is a copy
    handle.remove()
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in subject.model.modules())
    with beside_work(), pytest.raises(InputError, match="must be at rest"):
        study(subject)


def test_what_cannot_be_examined_is_said_in_one_line() -> None:
    subject = bert()
    for heads, words in (([(2, 0)], "there are 2 layers"), ([(0, 2)], "layer 0 has 2 heads")):
        with pytest.raises(UsageError, match=words):
            study(subject, heads=heads)
    for text in ("3", "a.b", "1.2.3", "", "1.-2"):
        with pytest.raises(UsageError, match="`heads` must be layers and heads"):
            parse_heads(text)
    with pytest.raises(UsageError, match="at most 8"):
        parse_heads(",".join(f"0.{head}" for head in range(9)))
    with pytest.raises(InputError, match="`text` must hold at least 8 tokens"):
        study_attention(subject, ["w1"])
    with pytest.raises(InputError, match="must attend somewhere"):
        study_attention(LiveSubject(tiny.build("fnet"), tokenizer=tiny.tokenizer()), TEXTS)
    assert study_attention(subject, TEXTS, only=["norms"]) is None


def test_only_and_skip_choose_statistics_and_checks() -> None:
    found = study(bert(_diffuse), only=["attention_validity"])
    assert {m.name for judged in found.layers for m in judged.snapshot} <= {
        "attention_rows_total",
        "attention_nonfinite_rows_total",
        "attention_unseeing_rows_total",
    }
    assert faults(study(bert(_diffuse), skip=["attention_uniform"])) == [{}, {}]


def test_words_name_the_gravest_heads_first_and_neighbours_are_no_fault() -> None:
    heads = [
        Head(0, "a", 0, {"attention_inner_entropy_ratio": 0.05}),
        Head(0, "a", 1, {"attention_inner_entropy_ratio": 0.01}),
        Head(0, "a", 2, {"attention_inner_entropy_ratio": 0.01, "attention_previous_ratio": 0.9}),
        Head(0, "a", 3, {"attention_inner_entropy_ratio": 0.6}, twin=(2, 0.999)),
    ]
    concentrated, redundant, neighbour = summary(heads)
    assert concentrated.endswith(": 0.1 (0.01), 0.0 (0.05).")
    assert redundant.endswith(": 0.3 (1).")
    assert neighbour.startswith("Neighbour: 1 of 4 heads")
    assert heads[3].words() == "redundant with head 2 (1)"
