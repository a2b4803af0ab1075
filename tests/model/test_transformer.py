"""The whole model: every kind and every option works, ties hold, padding and misuse do no harm."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from embedwatch_model import Memory, ModelError, Transformer
from tests.model import tiny
from tests.model.tiny import KINDS, POSITIONS, VOCABULARY, difference

STYLES: list[dict[str, Any]] = [
    {"norm": "pre", "activation": "gelu"},
    {"norm": "post", "activation": "relu"},
    {"norm": "pre", "norm_kind": "rms", "activation": "swiglu", "embedding_norm": True, "tied": False},
]


def run(model: Transformer, ids: Tensor, **more: Any) -> Tensor:
    return model(ids, **tiny.inputs(model.config.kind, len(ids)), **more).logits


def tables(model: Transformer) -> list[Tensor]:
    found = [model.embedding.tokens.weight, model.projection.weight]
    return found if model.encoder is None else [*found, model.encoder.embedding.tokens.weight]


class TestOutput:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("positions", POSITIONS)
    @pytest.mark.parametrize("style", STYLES)
    def test_gives_finite_logits_and_a_gradient_to_every_parameter(
        self, kind: str, positions: str, style: dict[str, Any]
    ) -> None:
        model = tiny.model(kind=kind, positions=positions, **style).train()
        logits = run(model, tiny.ids(2, 9))
        assert logits.shape == (2, 9, VOCABULARY)
        functional.cross_entropy(logits.flatten(0, 1), tiny.ids(2, 9, seed=1).flatten()).backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert bool(parameter.grad.isfinite().all()), name
            if "positions" in name:
                assert bool(parameter.grad.any()), name

    def test_hidden_is_what_the_head_reads(self) -> None:
        model = tiny.model()
        output = model(tiny.ids(2, 5))
        assert torch.equal(model.head(output.hidden), output.logits)

    @pytest.mark.parametrize("style", STYLES)
    def test_starts_with_logits_of_about_unit_spread(self, style: dict[str, Any]) -> None:
        torch.manual_seed(0)
        model = Transformer(tiny.config(d_model=64, heads=4, layers=6, **style)).eval()
        assert 0.5 < float(model(tiny.ids(8, 32)).logits.detach().std()) < 2

    def test_a_tied_and_scaled_model_starts_by_repeating_its_input(self) -> None:
        """The price that `TokenEmbedding` names: the logit of the token itself is near √D / √(1 + ½ + …)."""
        torch.manual_seed(0)
        ids = tiny.ids(8, 32)
        for tied in (True, False):
            logits = Transformer(tiny.config(d_model=64, heads=4, tied=tied)).eval()(ids).logits.detach()
            own = float(logits.gather(2, ids[:, :, None]).mean())
            assert (3 < own < 8) if tied else abs(own) < 1

    def test_the_stream_stays_near_the_size_of_the_embedding(self) -> None:
        torch.manual_seed(0)
        model = Transformer(tiny.config(d_model=64, heads=4, layers=12)).eval()
        seen: list[float] = []
        for layer in model.layers:
            layer.residual.register_forward_hook(lambda module, inputs, output: seen.append(float(output.std())))
        with torch.no_grad():
            model(tiny.ids(8, 32))
        assert 0.8 < seen[0] < 2
        assert 0.8 < seen[-1] < 2

    @pytest.mark.parametrize("kind", KINDS)
    def test_the_source_changes_the_output(self, kind: str) -> None:
        model = tiny.model(kind=kind)
        if kind == "encoder_decoder":
            ids = tiny.ids(2, 5)
            a, b = (model(ids, **tiny.source(2, seed)).logits for seed in (1, 2))
            assert difference(a, b) > 1e-3
        else:
            with pytest.raises(ModelError, match="`source` must be None for kind"):
                model(tiny.ids(2, 5), **tiny.source(2))

    def test_encoded_stands_for_the_source(self) -> None:
        model = tiny.model(kind="encoder_decoder")
        ids, given = tiny.ids(2, 5), tiny.source(2)
        encoded = model.encode(given["source"], given["source_mask"])
        found = model(ids, encoded=encoded, source_mask=given["source_mask"]).logits
        assert torch.equal(found, model(ids, **given).logits)


class TestTies:
    @pytest.mark.parametrize("kind", KINDS)
    def test_tied_tables_are_one_object(self, kind: str) -> None:
        model = tiny.model(kind=kind)
        assert len({id(table) for table in tables(model)}) == 1
        names = [
            name
            for name, _ in model.named_parameters()
            if "tokens" in name or name.endswith(("head.weight", "project.weight"))
        ]
        assert names == ["embedding.tokens.weight"]

    @pytest.mark.parametrize("kind", KINDS)
    def test_ties_survive_a_deep_copy(self, kind: str) -> None:
        original = tiny.model(kind=kind)
        model = copy.deepcopy(original)
        assert len({id(table) for table in tables(model)}) == 1
        assert tables(model)[0] is not tables(original)[0]

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("assign", [False, True])
    @pytest.mark.parametrize("once", [False, True])
    def test_ties_survive_loading_even_from_a_file_that_holds_the_table_once(
        self, kind: str, assign: bool, once: bool
    ) -> None:
        original, model = tiny.model(0, kind=kind), tiny.model(1, kind=kind)
        state = {name: tensor.clone() for name, tensor in original.state_dict().items()}
        if once:
            for name in original.tied_names():
                del state[name]
        model.load_state_dict(state, assign=assign)
        assert len({id(table) for table in tables(model)}) == 1
        ids = tiny.ids(2, 5)
        assert torch.equal(run(model, ids), run(original, ids))

    def test_a_missing_table_is_still_noticed(self) -> None:
        model = tiny.model()
        state = model.state_dict()
        del state["embedding.tokens.weight"]
        with pytest.raises(RuntimeError, match="Missing key"):
            model.load_state_dict(state)

    @pytest.mark.parametrize("kind", KINDS)
    def test_untied_tables_are_apart(self, kind: str) -> None:
        model = tiny.model(kind=kind, tied=False)
        assert len({id(table) for table in tables(model)}) == len(tables(model))
        assert model.tied_names() == []
        state = model.state_dict()
        state.pop("head.project.weight" if kind == "encoder" else "head.weight")
        with pytest.raises(RuntimeError, match="Missing key"):
            model.load_state_dict(state)

    def test_ties_survive_a_change_of_precision(self) -> None:
        model = tiny.model(kind="encoder_decoder").bfloat16()
        assert len({id(table) for table in tables(model)}) == 1


class TestCausality:
    @pytest.mark.parametrize("kind", ["decoder", "encoder_decoder"])
    @pytest.mark.parametrize("positions", POSITIONS)
    @pytest.mark.parametrize("extra", [{}, {"window": 4}, {"norm": "post"}])
    def test_a_token_changes_nothing_before_it(self, kind: str, positions: str, extra: dict[str, Any]) -> None:
        model = tiny.model(kind=kind, positions=positions, **extra)
        ids = tiny.ids(2, 11)
        before = run(model, ids)
        for t in (0, 5, 10):
            changed = ids.clone()
            changed[:, t] = (changed[:, t] + 1) % VOCABULARY
            after = run(model, changed)
            assert torch.equal(after[:, :t], before[:, :t])
            assert difference(after[:, t], before[:, t]) > 1e-4

    def test_an_encoder_sees_both_sides(self) -> None:
        model = tiny.model(kind="encoder")
        ids = tiny.ids(1, 6)
        changed = ids.clone()
        changed[:, 5] = (changed[:, 5] + 1) % VOCABULARY
        assert difference(model(changed).logits[:, 0], model(ids).logits[:, 0]) > 1e-4

    @pytest.mark.parametrize("kind", ["decoder", "encoder"])
    def test_beyond_the_window_nothing_is_seen(self, kind: str) -> None:
        model = tiny.model(kind=kind, layers=1, window=3)
        ids = tiny.ids(1, 12)
        changed = ids.clone()
        changed[:, 6] = (changed[:, 6] + 1) % VOCABULARY
        moved = (run(model, changed) - run(model, ids)).abs().amax(dim=-1)[0] > 1e-6
        assert moved.nonzero().flatten().tolist() == ([6, 7, 8] if kind == "decoder" else [4, 5, 6, 7, 8])


class TestPadding:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("positions", POSITIONS)
    @pytest.mark.parametrize("left", [False, True])
    def test_changes_nothing_for_the_rest(self, kind: str, positions: str, left: bool) -> None:
        model = tiny.model(kind=kind, positions=positions)
        ids, count = tiny.ids(1, 6), 4
        more = {name: tensor[:1] for name, tensor in tiny.inputs(kind, 2).items()}
        padding = tiny.ids(1, count, seed=5)
        padded = torch.cat([padding, ids] if left else [ids, padding], dim=1)
        real = torch.arange(10)[None] >= count if left else torch.arange(10)[None] < 6
        alone = model(ids, **more).logits
        found = model(padded, mask=real, **more).logits[:, real[0]]
        assert difference(found, alone) < 1e-5

    def test_of_the_source_changes_nothing(self) -> None:
        model = tiny.model(kind="encoder_decoder")
        ids, given = tiny.ids(2, 5), tiny.source(2)
        changed = torch.where(given["source_mask"], given["source"], 3)
        found = model(ids, source=changed, source_mask=given["source_mask"]).logits
        assert torch.equal(found, model(ids, **given).logits)
        short = model(ids[1:], source=given["source"][1:, :4]).logits
        assert difference(found[1:], short) < 1e-5

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("positions", POSITIONS)
    def test_a_row_of_nothing_but_padding_gives_no_nan(self, kind: str, positions: str) -> None:
        model = tiny.model(kind=kind, positions=positions).train()
        mask = torch.ones(2, 5, dtype=torch.bool)
        mask[1] = False
        more = tiny.inputs(kind, 2)
        if more:
            more["source_mask"][1] = False
        output = model(tiny.ids(2, 5), mask=mask, **more)
        output.logits.sum().backward()
        assert bool(output.logits.isfinite().all())
        assert all(bool(p.grad.isfinite().all()) for p in model.parameters() if p.grad is not None)


class TestLength:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("positions", [name for name in POSITIONS if name != "learned"])
    def test_goes_on_beyond_the_trained_length(self, kind: str, positions: str) -> None:
        short = tiny.model(kind=kind, positions=positions, length=8)
        long = tiny.model(kind=kind, positions=positions, length=128)
        ids = tiny.ids(2, 70)
        assert torch.equal(run(short, ids), run(long, ids))

    @pytest.mark.parametrize("kind", KINDS)
    def test_learned_positions_refuse(self, kind: str) -> None:
        model = tiny.model(kind=kind, positions="learned", length=8)
        assert run(model, tiny.ids(2, 8)).shape[1] == 8
        with pytest.raises(ModelError, match=r"at most 8 positions \(learned\), got 9"):
            run(model, tiny.ids(2, 9))

    def test_padding_does_not_count(self) -> None:
        model = tiny.model(positions="learned", length=8)
        ids, mask = tiny.ids(1, 12), torch.arange(12)[None] >= 4
        assert difference(model(ids, mask=mask).logits[:, 4:], model(ids[:, 4:]).logits) < 1e-5


class TestTraining:
    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("positions", POSITIONS)
    def test_a_step_in_bf16_autocast_lowers_the_loss(self, kind: str, positions: str) -> None:
        torch.manual_seed(0)
        model = Transformer(tiny.config(kind=kind, positions=positions, dropout=0.1))
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
        ids, mask = tiny.ids(4, 12), torch.arange(12) < torch.tensor([[12], [12], [7], [9]])
        losses = []
        for _ in range(8):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(ids, mask=mask, **tiny.inputs(kind, 4)).logits
            loss = functional.cross_entropy(logits.float()[mask], ids[mask])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            losses.append(float(loss.detach()))
        assert logits.dtype == torch.bfloat16
        assert losses[-1] < losses[0]

    def test_dropout_stands_where_the_paper_has_it(self) -> None:
        model = tiny.model(kind="encoder_decoder", dropout=0.5)
        names = [name for name, module in model.named_modules() if isinstance(module, torch.nn.Dropout)]
        stacks = [
            [f"{prefix}dropout", *(f"{prefix}layers.{i}.dropout" for i in range(2))] for prefix in ("", "encoder.")
        ]
        assert names == stacks[0] + stacks[1]
        calls: list[str] = []
        for name in names:
            hook = lambda module, inputs, output, name=name: calls.append(name)  # noqa: E731
            model.get_submodule(name).register_forward_hook(hook)
        run(model, tiny.ids(2, 5))
        assert calls.count("dropout") == calls.count("encoder.dropout") == 1
        assert calls.count("layers.0.dropout") == 3
        assert calls.count("encoder.layers.0.dropout") == 2

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("positions", POSITIONS)
    def test_the_whole_model_can_be_bf16(self, kind: str, positions: str) -> None:
        model = tiny.model(kind=kind, positions=positions)
        ids, mask = tiny.ids(2, 5), torch.arange(5) < torch.tensor([[5], [3]])
        expected = run(model, ids, mask=mask)
        found = run(model.bfloat16(), ids, mask=mask)
        assert found.dtype == torch.bfloat16
        assert difference(found.float(), expected) < 0.15


class TestMisuse:
    @pytest.mark.parametrize(
        ("ids", "words"),
        [
            (torch.tensor([1, 2]), r"`ids` must be a tensor \(B, T\) of int64, got shape \(2,\)"),
            (torch.tensor([[1.0]]), "torch.float32"),
            (torch.empty(2, 0, dtype=torch.long), "at least one position"),
            (torch.tensor([[VOCABULARY]]), "`ids` must be from 0 to 36, got 37 to 37"),
            (torch.tensor([[-1]]), "got -1 to -1"),
        ],
    )
    def test_of_ids(self, ids: Tensor, words: str) -> None:
        with pytest.raises(ModelError, match=words):
            tiny.model()(ids)

    def test_of_masks_and_segments(self) -> None:
        model, ids = tiny.model(), tiny.ids(2, 5)
        with pytest.raises(ModelError, match=r"`mask` must be a tensor \(2, 5\) of bool, got shape \(2, 4\)"):
            model(ids, mask=torch.ones(2, 4, dtype=torch.bool))
        with pytest.raises(ModelError, match="of bool, got"):
            model(ids, mask=torch.ones(2, 5))
        with pytest.raises(ModelError, match="`segments` must be None"):
            model(ids, segments=torch.zeros_like(ids))
        with pytest.raises(ModelError, match="`segments` must be from 0 to 1"):
            tiny.model(kind="encoder", segments=2)(ids, segments=torch.full_like(ids, 2))

    def test_of_sources(self) -> None:
        model, ids = tiny.model(kind="encoder_decoder"), tiny.ids(2, 5)
        with pytest.raises(ModelError, match="`source` must be given to an encoder-decoder"):
            model(ids)
        with pytest.raises(ModelError, match="`source` must have 2 rows, got 3"):
            model(ids, source=tiny.ids(3, 4))
        with pytest.raises(ModelError, match=r"`encoded` must be a tensor \(B, S, 16\), got shape \(2, 4, 8\)"):
            model(ids, encoded=torch.zeros(2, 4, 8))
        with pytest.raises(ModelError, match="`source` must be None with `encoded`"):
            model(ids, source=ids, encoded=torch.zeros(2, 5, 16))
        with pytest.raises(ModelError, match=r"`source_mask` must be a tensor \(2, 4\)"):
            model(ids, encoded=torch.zeros(2, 4, 16), source_mask=torch.ones(2, 5, dtype=torch.bool))
        with pytest.raises(ModelError, match="to encode"):
            tiny.model().encode(ids)

    def test_of_caches_and_memories(self) -> None:
        model, ids = tiny.model(), tiny.ids(2, 5)
        with pytest.raises(ModelError, match="`cache` must be for 2 rows, got one for 3"):
            model(ids, cache=model.cache(3))
        with pytest.raises(ModelError, match="for a cache"):
            tiny.model(kind="encoder").cache(2)
        with pytest.raises(ModelError, match='`cache` must be None for kind "encoder"'):
            tiny.model(kind="encoder")(ids, cache=model.cache(2))
        memory = Memory((torch.zeros(2, 3, 16),) * 2)
        with pytest.raises(ModelError, match="in a model without memory"):
            model(ids, memory=memory)
        recurrent = tiny.model(positions="relative", memory=4)
        with pytest.raises(ModelError, match="with a cache"):
            recurrent(ids, memory=memory, cache=recurrent.cache(2))
        with pytest.raises(ModelError, match="2 layers of 1 rows, got 2 layers of 2 rows"):
            recurrent(ids[:1], memory=memory)
