"""Untrained tokens: planted ones are found first, kinds are told apart, corpora are counted, writers are asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from torch import Tensor, nn

from embedwatch.core.boundary import Boundary
from embedwatch.core.exhibit import Exhibit
from embedwatch.core.verdict import Verdict
from embedwatch.diagnosing import diagnose
from embedwatch.inquiry import Inquiry
from embedwatch.loading.live import LiveSubject
from embedwatch.loading.suspects import find_suspects
from embedwatch_model import ModelConfig, Transformer

V, D, UNUSED = 400, 32, 8
"""Tokens w0 to w391, and eight that their names hold free."""


def tokenizer(words: int = V - UNUSED, unused: int = UNUSED) -> transformers.PreTrainedTokenizerFast:
    pieces = ["[PAD]", "[UNK]", *(f"[unused{i}]" for i in range(unused)), *(f"w{i}" for i in range(words - 2))]
    model = Tokenizer(models.WordLevel({piece: row for row, piece in enumerate(pieces)}, unk_token="[UNK]"))
    model.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=model, pad_token="[PAD]", unk_token="[UNK]")


def model_of(table: Tensor, **settings: Any) -> Transformer:
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocabulary=len(table), d_model=D, layers=1, heads=2, length=32, **settings))
    with torch.no_grad():
        model.embedding.tokens.weight.copy_(table)
    return model


def drawn(number: int, seed: int, std: float = 1.0) -> Tensor:
    return std * torch.randn(number, D, generator=torch.Generator().manual_seed(seed))


def usual() -> Tensor:
    """Rows as training makes them: norms that differ, a direction that frequent tokens share, unused ones as drawn."""
    table = drawn(V, 0) * torch.linspace(0.8, 1.6, V)[:, None] + 2 * drawn(1, 1) * torch.linspace(1, 0, V)[:, None]
    table[2 : 2 + UNUSED] = drawn(UNUSED, 3, 0.3)
    return table


def examined(
    subject: LiveSubject, **asked: Any
) -> tuple[dict[str, float | None], dict[str, Verdict], dict[str, Exhibit]]:
    boundary = Boundary(on_error="raise")
    (judged,) = diagnose(Inquiry(subject, **asked), places=("vocabulary",), exhibits=True, boundary=boundary)
    numbers = {measurement.name: measurement.number for measurement in judged.snapshot}
    exhibits = {exhibit.name: exhibit for exhibit in judged.exhibits}
    return numbers, {verdict.check: verdict for verdict in judged.verdicts}, exhibits


PLANTED = (17, 60, 133, 240, 311, 399)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("known", [True, False])
def test_planted_rows_are_the_first_candidates(tied: bool, known: bool) -> None:
    table = usual()
    table[list(PLANTED)] = drawn(len(PLANTED), 4, 0.3)
    names = tokenizer() if known else tokenizer(V, 0)
    if not known:
        table[2 : 2 + UNUSED] = drawn(UNUSED, 5)
    numbers, verdicts, exhibits = examined(LiveSubject(model_of(table, tied=tied), tokenizer=names))
    shown = [row[0] for row in exhibits["untrained_tokens"].rows]
    assert set(shown[: len(PLANTED)]) == set(PLANTED)
    assert (numbers["untrained_tokens"] or 0) >= len(PLANTED) - 1  # nine in ten lie below the limit
    assert numbers["known_unused_tokens"] == (UNUSED if known else 0)
    assert verdicts["untrained_tokens"].status == "ok"  # 6 of 382 are below 2 %


def test_rows_of_an_output_table_that_moved_together_are_found_there() -> None:
    table = usual()
    table[2 : 2 + UNUSED] = drawn(UNUSED, 5) * torch.linspace(0.5, 2.5, UNUSED)[:, None]
    model = model_of(table, tied=False)
    unused = [*range(2, 2 + UNUSED), *PLANTED]
    with torch.no_grad():
        output = model.head.weight
        output.copy_(usual())
        output[unused] = drawn(1, 5) + drawn(len(unused), 6, 0.05)  # as long as others, and alike
    suspects = find_suspects(LiveSubject(model, tokenizer=tokenizer()))
    assert suspects.separation.name in ("output_cosine", "output_distance")
    assert set(suspects.ranked()[: len(PLANTED)]) == set(PLANTED)


def test_many_untrained_tokens_fail() -> None:
    table = usual()
    table[300:] = drawn(100, 3, 0.2)
    _, verdicts, exhibits = examined(LiveSubject(model_of(table), tokenizer=tokenizer()))
    assert verdicts["untrained_tokens"].status == "fail"
    assert "w290" in {row[1] for row in exhibits["untrained_tokens"].rows[:100]}


def test_sound_rows_are_not_accused() -> None:
    table = usual()
    numbers, verdicts, _ = examined(LiveSubject(model_of(table), tokenizer=tokenizer()))
    assert numbers["untrained_tokens"] == 0
    assert {verdict.status for verdict in verdicts.values()} == {"ok"}


@pytest.mark.parametrize("left", ["mean", "drawn", "copies"])
def test_added_tokens_left_as_a_resize_made_them(left: str) -> None:
    table = usual()
    new = {
        "mean": table.mean(0) + drawn(4, 7, 1e-3),
        "drawn": drawn(4, 7, 0.02),
        "copies": table.mean(0).expand(4, -1) + 3,
    }[left]
    names = tokenizer()
    names.add_tokens([AddedToken(f"new{i}") for i in range(4)])
    numbers, verdicts, exhibits = examined(LiveSubject(model_of(torch.cat([table, new])), tokenizer=names))
    assert numbers["untrained_added_tokens"] == 4
    assert verdicts["added_tokens"].status == "warn"
    assert {row[1] for row in exhibits["untrained_tokens"].rows[:4]} == {"new0", "new1", "new2", "new3"}
    trained = LiveSubject(model_of(torch.cat([table, drawn(4, 8)])), tokenizer=names)
    assert examined(trained)[1]["added_tokens"].status == "ok"


def test_the_resize_of_transformers_is_seen() -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=V, n_embd=D, n_layer=1, n_head=2, n_positions=32, bos_token_id=0, eos_token_id=0)
    model = GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        model.transformer.wte.weight.copy_(usual())
    names = tokenizer()
    names.add_tokens([AddedToken(f"new{i}") for i in range(3)])
    model.resize_token_embeddings(V + 3)
    numbers, verdicts, _ = examined(LiveSubject(model, tokenizer=names))
    assert numbers["untrained_added_tokens"] == 3
    assert verdicts["added_tokens"].status == "warn"


def test_copies_of_a_row_are_named() -> None:
    table = usual()
    table[50] = table[90]
    numbers, _, exhibits = examined(LiveSubject(model_of(table), tokenizer=tokenizer()))
    assert numbers["twin_tokens"] == 2
    assert {row[0] for row in exhibits["untrained_tokens"].rows[:2]} == {50, 90}
    assert exhibits["untrained_tokens"].rows[0][4] == "copy"


def test_a_corpus_tells_norms_by_frequency_and_the_use_of_untrained_tokens(tmp_path: Path) -> None:
    table = usual()
    table[12:22] *= 3  # w2 to w11 come often
    table[PLANTED[0]] = drawn(1, 3, 0.1)[0]
    often = " ".join(f"w{i}" for i in range(2, 12))
    rare = " ".join(f"w{i}" for i in range(40, 100))
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(f"{f'{often} ' * 20}\n{rare}\nw{PLANTED[0] - 10} w200\n")
    numbers, verdicts, exhibits = examined(LiveSubject(model_of(table), tokenizer=tokenizer()), corpus=corpus)
    assert numbers["corpus_tokens"] == 200 + 60 + 2
    assert (numbers["norm_frequency_correlation"] or 0) > 0.4
    assert (numbers["frequent_norm_ratio"] or 0) > 1.5
    times = exhibits["untrained_tokens"].columns.index("times_in_corpus")
    assert exhibits["untrained_tokens"].rows[0][times] == 21
    assert numbers["untrained_use_ratio"] == pytest.approx(21 / 262)
    assert verdicts["untrained_use"].status == "fail"


def test_without_a_tokenizer_rows_are_told_by_number() -> None:
    table = usual()
    table[77] = drawn(1, 3, 0.1)[0]
    numbers, _, exhibits = examined(LiveSubject(model_of(table)))
    assert exhibits["untrained_tokens"].rows[0][:2] == (77, "77")
    assert numbers["unreachable_tokens_ratio"] is None


def test_a_vocabulary_that_does_not_fit_its_tokenizer_is_found() -> None:
    names = tokenizer()
    from tokenizers import normalizers

    names.backend_tokenizer.normalizer = normalizers.Replace("w1", "w0")
    numbers, verdicts, exhibits = examined(LiveSubject(model_of(usual()), tokenizer=names))
    assert numbers["unreachable_tokens_ratio"] == pytest.approx(111 / 390, abs=0.01)
    assert verdicts["unreachable_tokens"].status == "warn"
    assert exhibits["unreachable_tokens"].rows[0][1] == "w1"


def repeater(table: Tensor) -> Transformer:
    """A model that says its last token again: no layers to speak of, and a tied table."""
    model = model_of(table, positions="none")
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.startswith("layers") and weight.ndim == 2:
                weight.zero_()
    return model


def test_a_writer_repeats_ordinary_tokens_and_not_untrained_ones() -> None:
    table = usual()
    table[list(PLANTED)] = drawn(len(PLANTED), 4, 0.2)
    numbers, _, exhibits = examined(LiveSubject(repeater(table), tokenizer=tokenizer()), deep=True)
    assert (numbers["ordinary_repeat_probability"] or 0) > 0.5
    assert numbers["repeat_asked_tokens"] == numbers["unrepeatable_tokens"] == len(PLANTED)
    asked = [row for row in exhibits["repeated_tokens"].rows if row[2] == "suspicious"]
    assert {row[0] for row in asked} == set(PLANTED)


@pytest.mark.slow
@pytest.mark.parametrize("tied", [True, False])
def test_tokens_that_never_came_in_a_training_are_found(tied: bool) -> None:
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocabulary=V, d_model=D, layers=1, heads=2, length=32, dropout=0.0, tied=tied))
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, weight_decay=0.01)
    generator = torch.Generator().manual_seed(0)
    weights = 1 / torch.arange(1, V + 1).double()
    never = torch.zeros(V, dtype=torch.bool)
    never[list(range(2, 2 + UNUSED))] = True
    never[torch.randperm(V - 100, generator=generator)[:24] + 100] = True
    weights[never] = 0
    follows = torch.multinomial(weights, V, replacement=True, generator=generator)  # what mostly comes after each token
    for _ in range(500):
        ids = torch.multinomial(weights, 32 * 33, replacement=True, generator=generator).reshape(32, 33)
        for at in range(1, 33, 2):
            ids[:, at] = follows[ids[:, at - 1]]
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    hidden = set(never.nonzero()[:, 0].tolist()) - set(range(2, 2 + UNUSED))
    suspects = find_suspects(LiveSubject(model.eval(), tokenizer=tokenizer()))
    first = set(suspects.ranked()[: len(hidden) + 4])
    assert hidden <= first, (suspects.separation, len(hidden & first))
