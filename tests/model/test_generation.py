"""Writing on: every way to compute it gives the same text, and it ends where it should."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from embedwatch_model.beam import beam_search
from embedwatch_model.errors import ModelError
from embedwatch_model.generated import Generated
from embedwatch_model.generation import generate
from embedwatch_model.rule_chain import usual_rules
from embedwatch_model.rules import Rule, no_repeat_ngram, repetition_penalty, temperature
from embedwatch_model.stopping import Stop
from tests.model.writers import END, HuggingFace, next_logits, random_model

SCHEMES = ["sinusoidal", "learned", "rope", "alibi", "relative", "none"]
PROMPTS = [[1, 5, 6, 7, 3], [3], [4, 4]]
RULES = usual_rules(repetition_penalty=1.3, no_repeat_ngram=3, top_k=8, top_p=0.9)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(found: Generated) -> list[tuple[int, ...]]:
    return [text.ids for text in found.texts]


def step_by_step(model: Any, prompt: list[int], count: int, rules: list[Rule], **source: Any) -> tuple[int, ...]:
    """Take the most probable token, computed from nothing each time."""
    written: list[int] = []
    while len(written) < count and END not in written:
        logits = next_logits(model, prompt, written, **source)[None]
        for rule in rules:
            logits = rule(torch.tensor([[*prompt, *written]]), logits)
        written.append(int(logits.argmax()))
    return tuple(written)


@pytest.mark.parametrize("rules", [[], RULES], ids=["free", "ruled"])
@pytest.mark.parametrize("positions", SCHEMES)
def test_greedy_is_the_most_probable_token_again_and_again(positions: str, rules: list[Rule]) -> None:
    """In a batch of ragged prompts, with a cache: as alone, without."""
    model = random_model(positions=positions)
    found = generate(model, PROMPTS, max_tokens=12, rules=rules, stop=Stop(tokens=[END]))
    assert rows(found) == [step_by_step(model, prompt, 12, rules) for prompt in PROMPTS]


@pytest.mark.parametrize("positions", SCHEMES)
@pytest.mark.parametrize("extra", [{}, {"kv_heads": 1}, {"window": 3}, {"norm": "post"}])
def test_cached_is_uncached(positions: str, extra: dict[str, Any]) -> None:
    model = random_model(positions=positions, **extra)
    for tau in (0.0, 1.0):
        write = partial(generate, model, PROMPTS, max_tokens=12, temperature=tau, rules=RULES)
        cached, uncached = (write(generator=seeded(), cached=cached) for cached in (True, False))
        assert rows(cached) == rows(uncached)
        torch.testing.assert_close(cached.log_probabilities, uncached.log_probabilities)


def test_a_model_with_a_memory_writes_too() -> None:
    model = random_model(positions="relative", memory=8)
    found = generate(model, PROMPTS, max_tokens=12)
    assert rows(found) == rows(generate(model, PROMPTS, max_tokens=12, cached=False))


def test_on_another_librarys_model() -> None:
    model = HuggingFace(11)
    found = generate(model, PROMPTS, max_tokens=8)  # type: ignore[arg-type]
    for prompt, ids in zip(PROMPTS, rows(found), strict=True):
        theirs = model.model.generate(
            torch.tensor([prompt]), max_new_tokens=8, do_sample=False, eos_token_id=None, pad_token_id=0
        )
        assert list(ids) == theirs[0, len(prompt) :].tolist()


@pytest.mark.parametrize("rules", [[], RULES], ids=["free", "ruled"])
def test_greedy_is_temperature_zero_is_one_beam_is_top_one(rules: list[Rule]) -> None:
    for seed in range(5):
        model = random_model(seed=seed)
        write = partial(generate, model, PROMPTS, max_tokens=10)
        greedy = rows(write(rules=rules))
        assert rows(write(rules=[*rules, partial(temperature, tau=0)], temperature=1.0, generator=seeded())) == greedy
        assert rows(write(rules=[*rules, *usual_rules(top_k=1)], temperature=1.0, generator=seeded())) == greedy
        assert rows(write(rules=rules, temperature=1e-6, generator=seeded())) == greedy
    assert rows(beam_search(model, PROMPTS, max_tokens=10, beams=1)) == rows(write())


def test_the_seed_decides_the_text_and_the_global_generator_stays() -> None:
    model = random_model(sharp=1.0)
    torch.manual_seed(7)
    before = torch.get_rng_state()
    first, again, other = (
        generate(model, PROMPTS, max_tokens=20, temperature=1.0, generator=seeded(seed)) for seed in (1, 1, 2)
    )
    assert rows(first) == rows(again)
    assert all(one != two for one, two in zip(rows(first), rows(other), strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_first_tokens_are_drawn_as_the_model_says() -> None:
    model = random_model(sharp=0.3)
    draws = 20_000
    found = generate(model, [[1, 5]], max_tokens=1, temperature=2.0, generator=seeded(), count=draws)
    expected = (next_logits(model, [1, 5], []) / 2).softmax(-1)
    seen = torch.bincount(found.ids[:, 0], minlength=13) / draws
    assert ((seen - expected).abs() <= 4.5 * (expected * (1 - expected) / draws).sqrt()).all()


def test_count_writes_several_texts_for_each_prompt_in_its_order() -> None:
    model = random_model(sharp=1.0)
    found = generate(model, [[1, 5], [3]], max_tokens=6, temperature=1.0, generator=seeded(), count=3)
    assert len(set(rows(found))) == 6
    for number, text in enumerate(found.texts):
        prompt = [[1, 5], [3]][number // 3]
        own = [
            float(next_logits(model, prompt, text.ids[:place]).log_softmax(-1)[token])
            for place, token in enumerate(text.ids)
        ]
        assert text.log_probabilities == pytest.approx(own, rel=1e-4, abs=1e-6)
        assert text.score == pytest.approx(sum(own), rel=1e-4)


def test_log_probabilities_are_the_models_own_under_any_rule() -> None:
    model = random_model()
    ruled = generate(model, [[1]], max_tokens=8, rules=[partial(repetition_penalty, theta=5.0)])
    own = [
        float(next_logits(model, [1], ruled.texts[0].ids[:place]).log_softmax(-1)[token])
        for place, token in enumerate(ruled.texts[0].ids)
    ]
    assert ruled.log_probabilities[0].tolist() == pytest.approx(own, rel=1e-4, abs=1e-6)


def test_ids_finished_and_padding_past_the_end() -> None:
    model = random_model(seed=2)
    free = rows(generate(model, PROMPTS, max_tokens=8))
    ends = free[0][2]
    found = generate(model, PROMPTS, max_tokens=8, stop=Stop(tokens=[ends]))
    cut = [ids[: ids.index(ends) + 1] if ends in ids else ids for ids in free]
    assert rows(found) == cut
    assert found.finished.tolist() == [ends in ids for ids in free]
    assert found.ids.shape == found.log_probabilities.shape == (3, max(map(len, cut)))
    for row, ids, logs in zip(cut, found.ids, found.log_probabilities, strict=True):
        assert (ids[len(row) :] == -1).all()
        assert (logs[len(row) :] == 0).all()
        assert (ids[: len(row)] >= 0).all()


def test_a_stop_on_the_last_possible_token_counts_as_finished() -> None:
    free = rows(generate(random_model(), [[1]], max_tokens=4))[0]
    found = generate(random_model(), [[1]], max_tokens=4, stop=Stop(sequences=[free]))
    assert rows(found) == [free]
    assert found.finished.tolist() == [True]


def test_a_stop_text_ends_across_token_borders_and_never_in_the_prompt() -> None:
    pieces = ["a", "ab", "bc", "c", "d", "da", "x", "y", "z", "q", "r", "s", "t"]

    def spell(ids: Any) -> str:
        return "".join(pieces[each] for each in ids)

    model = random_model(sharp=0.5)
    stop = Stop(texts=["bca", "dd"], decode=spell)
    found = generate(model, [[4, 4, 2, 0]] * 400, max_tokens=20, temperature=1.0, generator=seeded(), stop=stop)
    ended = [text for text in found.texts if text.finished]
    assert {len(text.ids) for text in ended} >= {2, 3}
    for text in found.texts:
        assert stop.reached(text.ids) == text.finished
        assert not stop.reached(text.ids[:-1])
        assert text.finished or len(text.ids) == 20


@pytest.mark.parametrize("positions", SCHEMES)
def test_an_encoder_decoder_translates_in_batches_as_alone(positions: str) -> None:
    model = random_model(kind="encoder_decoder", positions=positions)
    sources = [[3, 4, 5, 6], [7], [8, 9, 3]]
    write = partial(generate, model, max_tokens=10, rules=RULES, stop=Stop(tokens=[END]))
    found = write([[1]] * 3, source=sources)
    assert rows(found) == rows(write([[1]] * 3, source=sources, cached=False))
    assert rows(found) == [step_by_step(model, [1], 10, RULES, source=torch.tensor([each])) for each in sources]


def test_prompts_may_be_lists_arrays_or_tensors() -> None:
    wanted = rows(generate(random_model(), [[1, 5], [3, 4]]))
    tensor = torch.tensor([[1, 5], [3, 4]])
    for prompts in (tensor, list(tensor), tensor.numpy(), list(tensor.int().numpy()), [range(1, 6, 4), (3, 4)]):
        assert rows(generate(random_model(), prompts)) == wanted


def test_dropout_is_off_meanwhile_and_every_module_is_left_as_it_was() -> None:
    model = random_model(dropout=0.5, attention_dropout=0.5)
    quiet = rows(generate(model, PROMPTS))
    model.train()
    model.layers[0].eval()  # type: ignore[operator]
    modes = [module.training for module in model.modules()]
    assert rows(generate(model, PROMPTS)) == quiet
    assert [module.training for module in model.modules()] == modes
    with pytest.raises(ModelError):
        generate(model, PROMPTS, rules=[partial(no_repeat_ngram, n=0)])
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize("positions", ["sinusoidal", "rope"])
def test_training_goes_on_after_writing_beyond_the_trained_length(positions: str) -> None:
    """Tables that grow meanwhile must stay usable where gradients flow."""
    model = random_model(positions=positions, length=8)
    generate(model, [[1]], max_tokens=20)
    model(torch.arange(12)[None]).logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_learned_positions_say_before_the_work_how_much_room_there_is() -> None:
    model = random_model(positions="learned", length=8)
    assert generate(model, [[1, 2, 3]], max_tokens=6).ids.shape == (1, 6)
    with pytest.raises(
        ModelError, match=r"`max_tokens` must be at most 6 after 3 tokens, got 7; learned positions end"
    ):
        generate(model, [[1, 2, 3]], max_tokens=7)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_tokens": 0}, "`max_tokens` must be at least 1, got 0"),
        ({"count": 0}, "`count` must be at least 1, got 0"),
        ({"count": 2}, "`count` must be 1 at temperature 0, got 2; greedy decoding gives the same text each time"),
        ({"temperature": 1.0}, r"`generator` must be a torch.Generator at temperature 1.0, got None; "),
        ({"temperature": -1.0}, "`temperature` must be a number from 0 up, got -1.0; "),
        ({"temperature": float("nan")}, "`temperature` must be a number from 0 up, got nan; "),
        ({"prompts": []}, "`prompts` must hold at least one row, got none; "),
        ({"prompts": [[1], []]}, r"`prompts` must be rows of at least one id each, got \[\]; "),
        ({"prompts": [1, 2]}, "`prompts` must be rows of at least one id each, got 1; "),
        ({"prompts": torch.tensor([1, 2])}, r"`prompts` must be rows of at least one id each, got tensor\(1\); "),
        ({"prompts": "text"}, "`prompts` must be rows of at least one id each, got 't'; "),
        ({"prompts": [[[1]]]}, r"`prompts` must be rows of at least one id each, got \[\[1\]\]; "),
        ({"prompts": [[13]]}, "`prompts` must hold ids from 0 to 12, got 13; use the model's own tokenizer"),
        ({"prompts": [[-1, 3]]}, "`prompts` must hold ids from 0 to 12, got -1; "),
        ({"prompts": [[0.5]]}, "`prompts` must hold ids from 0 to 12, got 0.5; "),
        (
            {"source": [[1]]},
            '`source` must be there for an encoder-decoder alone, got one for kind "decoder"; leave it',
        ),
    ],
)
def test_misuse(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        generate(random_model(), **{"prompts": [[1]], **settings})


def test_misuse_of_kinds() -> None:
    with pytest.raises(
        ModelError, match='`model` must be a decoder or an encoder-decoder to write, got kind "encoder"'
    ):
        generate(random_model(kind="encoder"), [[1]])
    translator = random_model(kind="encoder_decoder")
    with pytest.raises(ModelError, match='got none for kind "encoder_decoder"; give it'):
        generate(translator, [[1]])
    with pytest.raises(ModelError, match="`source` must have as many rows as `prompts`, 1, got 2; "):
        generate(translator, [[1]], source=[[3], [4]])
    with pytest.raises(ModelError, match=r"`source` must hold ids from 0 to 12, got 99; "):
        generate(translator, [[1]], source=[[99]])


def test_damaged_weights_are_named() -> None:
    model = random_model()
    with torch.no_grad():
        model.embedding.tokens.weight[5] = torch.nan
    for write in (generate, beam_search):
        with pytest.raises(ModelError, match=r"`logits` must be finite numbers, got nan in row 1; the weights may be"):
            write(model, [[1], [5]])


def test_rules_that_leave_nothing_are_named() -> None:
    with pytest.raises(ModelError, match="`rules` must leave a token to choose, got none in row 0; "):
        generate(random_model(vocabulary=3), [[1]], max_tokens=5, rules=[partial(no_repeat_ngram, n=1)])
