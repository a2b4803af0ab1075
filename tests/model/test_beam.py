"""Beam search against all texts there are, against a plain search, and against transformers."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GenerationConfig

from embedwatch_model.beam import beam_search
from embedwatch_model.beam_group import BeamGroup
from embedwatch_model.errors import ModelError
from embedwatch_model.generated import Generated
from embedwatch_model.generation import generate
from embedwatch_model.length_penalty import LengthPenalty, power_penalty, wu_penalty
from embedwatch_model.rule_chain import usual_rules
from embedwatch_model.rules import no_repeat_ngram, repetition_penalty, temperature, top_k
from embedwatch_model.stopping import Stop
from embedwatch_model.transformer import Transformer
from tests.model.writers import END, HuggingFace, LogP, every_text, next_logits, plain_groups, random_model

STOP = Stop(tokens=[END])
PROMPT = [1, 0]
PENALTIES: list[LengthPenalty] = [
    partial(wu_penalty, alpha=0.0),
    partial(wu_penalty, alpha=0.6),
    partial(wu_penalty, alpha=3.0),
    partial(power_penalty, alpha=1.0),
    partial(power_penalty, alpha=-0.5),
]


def conditional(model: Transformer, prompt: list[int] = PROMPT, **source: Any) -> LogP:
    """Return the model as a function from what is written, remembered."""
    return cache(lambda ids: next_logits(model, prompt, ids, **source).log_softmax(-1))


def rows(found: Generated) -> list[tuple[int, ...]]:
    return [text.ids for text in found.texts]


def scores(found: Generated) -> list[float]:
    return [text.score for text in found.texts]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("stop", [None, STOP], ids=["endless", "with end"])
@pytest.mark.parametrize("early", [False, True])
def test_a_beam_as_wide_as_needed_finds_the_best_of_all_texts(
    penalty: LengthPenalty, stop: Stop | None, early: bool
) -> None:
    model = random_model(vocabulary=3, seed=4)
    end = None if stop is None else END
    texts = every_text(conditional(model), vocabulary=3, longest=5, end=end)
    best = sorted(((total / penalty(len(ids)), ids) for ids, total in texts), reverse=True)[:9]
    found = beam_search(
        model, [PROMPT], max_tokens=5, beams=243, length_penalty=penalty, stop=stop, early=early, count=9
    )
    assert rows(found) == [ids for _, ids in best]
    assert scores(found) == pytest.approx([score for score, _ in best])


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    width=st.integers(1, 4),
    groups=st.integers(1, 3),
    diversity=st.sampled_from([0.0, 0.3, 2.0, 50.0]),
    penalty=st.sampled_from(PENALTIES),
)
def test_any_width_and_groups_search_as_the_formula_says(
    seed: int, width: int, groups: int, diversity: float, penalty: LengthPenalty
) -> None:
    """Where no group looks at another, the plain search never ends early: so the bound for that loses nothing."""
    model = random_model(vocabulary=5, seed=seed)
    wanted = plain_groups(
        conditional(model),
        width=width,
        groups=groups,
        diversity=diversity,
        penalty=penalty,
        longest=5,
        end=END,
        ending=groups > 1 and diversity > 0,
    )
    found = beam_search(
        model,
        [PROMPT],
        max_tokens=5,
        beams=width * groups,
        groups=groups,
        diversity=diversity,
        length_penalty=penalty,
        stop=STOP,
        count=width * groups,
    )
    ranks = [sorted((best[rank] for best in wanted if rank < len(best)), reverse=True) for rank in range(width)]
    flat = [each for rank in ranks for each in rank]
    assert scores(found)[: len(flat)] == pytest.approx([score for score, _ in flat])
    assert rows(found)[: len(flat)] == [ids for _, ids in flat]
    assert all(text.ids == () and text.score == -math.inf for text in found.texts[len(flat) :])


@pytest.mark.parametrize("alpha", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("rules", [False, True])
def test_as_transformers_searches(alpha: float, early: bool, rules: bool) -> None:
    prompts = [[5, 6, 7], [3, 3, 4], [8, 1, 9]]
    for seed in range(4):
        model = HuggingFace(11, seed=seed)
        settings = GenerationConfig(
            max_new_tokens=8,
            num_beams=4,
            num_return_sequences=3,
            length_penalty=alpha,
            early_stopping=True if early else "never",
            do_sample=False,
            eos_token_id=END,
            pad_token_id=0,
            repetition_penalty=1.2 if rules else None,
            no_repeat_ngram_size=2 if rules else None,
            output_scores=True,
            return_dict_in_generate=True,
        )
        ids = torch.tensor(prompts)
        theirs = model.model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=settings)
        ours = beam_search(
            model,
            prompts,
            max_tokens=8,
            beams=4,
            count=3,
            length_penalty=partial(power_penalty, alpha=alpha),
            early=early,
            rules=usual_rules(repetition_penalty=1.2, no_repeat_ngram=2) if rules else [],
            stop=STOP,
        )
        assert scores(ours) == pytest.approx(theirs.sequences_scores.tolist(), rel=1e-5)
        cut = [row[: row.index(END) + 1] if END in row else row for row in theirs.sequences[:, 3:].tolist()]
        assert rows(ours) == [tuple(row) for row in cut]


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rope", "alibi", "relative", "none"])
@pytest.mark.parametrize("groups", [1, 2])
def test_cached_is_uncached_and_batched_is_one_by_one(positions: str, groups: int) -> None:
    model = random_model(positions=positions)
    prompts = [[1, 5, 6, 7], [3], [4, 4]]
    search = partial(beam_search, model, max_tokens=8, beams=4, groups=groups, count=4, stop=STOP)
    found = search(prompts)
    assert rows(search(prompts, cached=False)) == rows(found)
    alone = [search([prompt]) for prompt in prompts]
    assert [text for each in alone for text in rows(each)] == rows(found)
    assert scores(found) == pytest.approx([score for each in alone for score in scores(each)])


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6), groups=st.integers(1, 3))
def test_one_beam_is_greedy_and_a_group_of_one_that_pays_nothing_too(seed: int, groups: int) -> None:
    model = random_model(seed=seed)
    greedy = generate(model, [[1], [3, 4]], max_tokens=8, stop=STOP)
    assert rows(beam_search(model, [[1], [3, 4]], max_tokens=8, beams=1, stop=STOP)) == rows(greedy)
    apart = beam_search(model, [[1], [3, 4]], max_tokens=8, beams=groups, groups=groups, diversity=0.0, stop=STOP)
    assert rows(apart) == rows(greedy)


def test_groups_differ_the_more_they_pay() -> None:
    model = random_model(seed=1)
    search = partial(beam_search, model, [PROMPT], max_tokens=6, beams=3, groups=3, count=3)
    assert len(set(rows(search(diversity=0.0)))) == 1
    apart = [list(column) for column in zip(*rows(search(diversity=1e6)), strict=True)]
    assert all(len(set(tokens)) == 3 for tokens in apart)  # at every step each group another token
    best = rows(search(diversity=0.0))[0]
    assert best in rows(search(diversity=1e6))  # the first group pays nothing


def test_log_probabilities_are_the_models_own_under_any_rule() -> None:
    model = random_model(seed=2)
    rules = [partial(repetition_penalty, theta=2.0), partial(no_repeat_ngram, n=2), partial(temperature, tau=0.5)]
    found = beam_search(model, [PROMPT], max_tokens=6, beams=3, count=3, rules=rules, stop=STOP)
    log_p = conditional(model)
    for text in found.texts:
        own = [float(log_p(text.ids[:place])[token]) for place, token in enumerate(text.ids)]
        assert text.log_probabilities == pytest.approx(own)


def test_bans_leave_the_best_of_what_is_allowed() -> None:
    model = random_model(vocabulary=3, seed=4)

    def allowed(ids: tuple[int, ...]) -> bool:
        grams = list(zip([*PROMPT, *ids], [*PROMPT[1:], *ids], strict=False))
        return len(set(grams)) == len(grams)

    texts = every_text(conditional(model), vocabulary=3, longest=4, end=None)
    best = max((total / wu_penalty(4, alpha=0.6), ids) for ids, total in texts if allowed(ids))
    found = beam_search(model, [PROMPT], max_tokens=4, beams=81, rules=[partial(no_repeat_ngram, n=2)])
    assert rows(found) == [best[1]]
    assert scores(found) == pytest.approx([best[0]])


def test_temperature_changes_nothing_but_scores() -> None:
    model = random_model(seed=3)
    search = partial(beam_search, model, [PROMPT], max_tokens=6, beams=3, count=3, stop=STOP)
    warm = search(rules=[partial(temperature, tau=2.0)])
    assert rows(warm) == rows(search())
    assert scores(warm) == pytest.approx([score / 2 for score in scores(search())])


def test_an_encoder_decoder_finds_the_best_translation() -> None:
    model = random_model(vocabulary=3, kind="encoder_decoder", seed=6)
    sources = [[0, 1, 2, 1], [2]]
    found = beam_search(model, [[1], [1]], source=sources, max_tokens=4, beams=81, stop=STOP)
    for text, source in zip(found.texts, sources, strict=True):
        log_p = conditional(model, [1], source=torch.tensor([source]))
        texts = every_text(log_p, vocabulary=3, longest=4, end=END)
        score, ids = max((total / wu_penalty(len(ids), alpha=0.6), ids) for ids, total in texts)
        assert text.ids == ids
        assert text.score == pytest.approx(score)


def test_stop_sequences_and_texts_end_hypotheses() -> None:
    model = random_model(seed=5)
    free = rows(beam_search(model, [PROMPT], max_tokens=8, beams=2))[0]
    stop = Stop(sequences=[free[2:4]], texts=["".join(map(chr, free[2:4]))], decode=lambda ids: "".join(map(chr, ids)))
    found = beam_search(model, [PROMPT], max_tokens=8, beams=64, count=64, stop=stop)
    ended = [text for text in found.texts if text.finished]
    assert ended
    for text in found.texts:
        places = [place for place in range(1, len(text.ids)) if text.ids[place - 1 : place + 1] == free[2:4]]
        assert places == ([len(text.ids) - 1] if text.finished else [])


def test_fewer_texts_than_asked_for_leave_empty_rows() -> None:
    found = beam_search(random_model(vocabulary=3), [PROMPT], max_tokens=1, beams=5, count=5)
    assert found.ids.shape == (5, 1)
    assert sorted(found.ids[:3, 0].tolist()) == [0, 1, 2]
    assert found.ids[3:].tolist() == [[-1], [-1]]
    assert found.scores[3:].tolist() == [-math.inf, -math.inf]
    assert found.log_probabilities[3:].tolist() == [[0.0], [0.0]]
    assert not found.finished.any()


def test_rules_that_leave_nothing_are_an_error_only_if_nothing_was_found() -> None:
    model = random_model(vocabulary=3)
    search = partial(beam_search, model, [[1]], max_tokens=9, beams=3, rules=[partial(no_repeat_ngram, n=1)])
    assert all(text.finished for text in search(stop=STOP).texts)
    with pytest.raises(ModelError, match="`rules` must leave a way to go on"):
        search()


def test_many_stop_tokens_still_leave_as_many_beams() -> None:
    """All but three tokens end a text, and two of the three are less probable than each of those."""
    group = BeamGroup(3, [1.0, 1e3, 1e3], Stop(tokens=range(3, 40)), early=False)
    steps = torch.linspace(-4, -3, 40)[None]
    steps[0, 0] = -3.09
    assert group.extend(steps, steps, torch.zeros(40)) == [(0, 0), (0, 2), (0, 1)]
    assert [text.ids for text in group.best] == [(39,), (38,), (37,)]
    assert group.taken == [39, 38, 37, 0, 2, 1]


def test_a_group_goes_on_while_a_later_length_could_still_win() -> None:
    """After one token the best score is -1; the living beam has -2 and reaches -2 / 10 at the third at most."""
    nothing = torch.zeros(3)
    for last, over in ((10.0, False), (1.5, True)):
        group = BeamGroup(1, [1.0, 1.0, last], STOP, early=False)
        steps = torch.tensor([[-2.0, -9.0, -1.0]])
        assert (group.extend(steps, steps, nothing) == []) is over
    eager = BeamGroup(1, [1.0, 1.0, 10.0], STOP, early=True)
    assert eager.extend(steps, steps, nothing) == []
    assert [(text.ids, text.score) for text in eager.best] == [((END,), -1.0)]


def test_top_k_narrows_the_search() -> None:
    model = random_model(seed=7)
    narrow = beam_search(model, [PROMPT], max_tokens=6, beams=5, count=1, rules=[partial(top_k, k=1)])
    assert rows(narrow) == rows(generate(model, [PROMPT], max_tokens=6))


def test_length_penalties_are_their_formulas() -> None:
    assert [wu_penalty(n, alpha=0.6) for n in (1, 10)] == pytest.approx([1.0, (15 / 6) ** 0.6])
    assert [power_penalty(n, alpha=0.5) for n in (1, 9)] == [1.0, 3.0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beams": 0}, "`beams` must be at least 1, got 0"),
        ({"beams": 4, "groups": 3}, "`groups` must be a divisor of `beams` 4, got 3"),
        ({"beams": 2, "count": 3}, "`count` must be at most `beams` 2, got 3"),
        ({"diversity": -1.0}, "`diversity` must be a number from 0 up, got -1.0"),
        ({"diversity": math.nan}, "`diversity` must be a number from 0 up, got nan"),
        ({"length_penalty": lambda length: 0.0}, "`length_penalty` must be a number above 0, got 0.0 for 1 tokens"),
        ({"length_penalty": partial(power_penalty, alpha=1e9)}, "got inf for 2 tokens"),
        ({"max_tokens": 0}, "`max_tokens` must be at least 1, got 0"),
    ],
)
def test_misuse(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        beam_search(random_model(), [[1]], **settings)
