"""Directories of sentence-transformers give the vectors that it gives, without importing it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from embedwatch.core.errors import InputError, UsageError
from embedwatch.loading import load_subject
from tests.loading import tiny
from tests.loading.test_encoding import close

st = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed (extra: oracles)")
from sentence_transformers.sentence_transformer import modules as stm  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")  # of sentence-transformers; ours are silenced, see test_encoding.py

Get = Callable[[str], Path]
TEXTS = [*tiny.texts(), "W1 W2 w3"]
QUERY = {"prompts": {"query": "w1 w2: ", "document": ""}, "default_prompt_name": "query"}


@pytest.fixture
def save(model: Get, tmp_path: Path) -> Callable[..., Path]:
    """Save a model of sentence-transformers over a tiny one, with these modules behind the transformer."""

    def get(*after: Any, kind: str = "bert", transformer: dict[str, Any] | None = None, **options: Any) -> Path:
        torch.manual_seed(1)
        first = stm.Transformer(str(model(kind)), **(transformer or {}))
        st.SentenceTransformer(modules=[first, *after], device="cpu", **options).save(str(tmp_path / "saved"))
        return tmp_path / "saved"

    return get


def theirs(path: Path, texts: list[str] = TEXTS) -> Tensor:
    return torch.tensor(st.SentenceTransformer(str(path), device="cpu").encode(texts))


def agrees(path: Path) -> bool:
    return close(load_subject(path).encode(TEXTS), theirs(path))


def change(file: Path, **keys: Any) -> None:
    content = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps({**content, **keys}))


POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")


@pytest.mark.parametrize("pooling", [*POOLINGS, ("cls", "mean"), ("max", "lasttoken", "weightedmean")])
def test_poolings(pooling: Any, save: Callable[..., Path]) -> None:
    assert agrees(save(stm.Pooling(16, pooling)))


@pytest.mark.parametrize(
    "kind", ["roberta", "mpnet", "albert", "modernbert", "xlnet", "gpt2", "llama", "t5", "distilbert"]
)
def test_architectures(kind: str, save: Callable[..., Path]) -> None:
    assert agrees(save(stm.Pooling(16, "mean"), stm.Normalize(), kind=kind))


STEPS: dict[str, Callable[[], list[nn.Module]]] = {
    "normalize": lambda: [stm.Normalize()],
    "dense": lambda: [stm.Dense(16, 8)],
    "dense without bias": lambda: [stm.Dense(16, 8, bias=False, activation_function=nn.Identity())],
    "two dense layers": lambda: [stm.Dense(16, 24, activation_function=nn.GELU()), stm.Dense(24, 4)],
    "layer norm": lambda: [stm.LayerNorm(16), stm.Normalize()],
    "dropout": lambda: [stm.Dropout(0.5)],
}


@pytest.mark.parametrize("steps", STEPS)
def test_steps(steps: str, save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, "mean"), *STEPS[steps]())
    encoder = load_subject(path).encoder()
    vectors = encoder.encode(TEXTS).vectors
    assert close(vectors, theirs(path))
    assert encoder.dimension == vectors.shape[1]


def test_notes_tell_the_recipe(save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, ("cls", "mean")), stm.Dense(32, 8), stm.Normalize(), **QUERY)
    assert load_subject(path).encoder().notes == (
        "cls and mean pooling, from modules.json, a dense layer to 8 dimensions, scaled to length 1",
        'every text begins with "w1 w2: ", the model\'s default prompt',
    )


@pytest.mark.parametrize("pooling", POOLINGS)
def test_a_prompt_that_the_pooling_leaves_out(pooling: Any, save: Callable[..., Path]) -> None:
    assert agrees(save(stm.Pooling(16, pooling, include_prompt=False), **QUERY))


def test_a_default_prompt(save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, "mean"), **QUERY)
    assert agrees(path)
    assert close(load_subject(path).encode(TEXTS, prefix=""), theirs_without_prompt(path))


def theirs_without_prompt(path: Path) -> Tensor:
    return torch.tensor(st.SentenceTransformer(str(path), device="cpu").encode(TEXTS, prompt=""))


def test_prompts_without_a_default_are_a_note(save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, "mean"), prompts={"query": "w1 ", "passage": "w2 "})
    assert agrees(path)
    assert load_subject(path).encoder().notes[1] == (
        "no prompt was used: the model names passage, query and no default; choose with `--prefix`"
    )


@pytest.mark.parametrize("limit", [3, 10])
def test_a_maximum_length(limit: int, save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, "mean"), transformer={"max_seq_length": limit})
    assert agrees(path)
    change(path / "sentence_bert_config.json", max_seq_length=limit + 1)  # older versions wrote it here
    assert load_subject(path).encoder().limit == limit + 1
    assert agrees(path)


def test_lower_case(save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, "mean"))
    before = load_subject(path).encode(TEXTS)[-1]
    change(path / "sentence_bert_config.json", do_lower_case=True)
    assert agrees(path)
    assert not close(load_subject(path).encode(TEXTS)[-1], before)


def test_fewer_dimensions(save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, "mean"), truncate_dim=5)
    assert agrees(path)
    assert load_subject(path).encoder().dimension == 5


def test_two_towers(copy: Get, tmp_path: Path) -> None:
    from transformers import CLIPImageProcessor

    path = copy("clip")
    CLIPImageProcessor(size={"shortest_edge": 8}, crop_size=8).save_pretrained(
        path
    )  # sentence-transformers asks for one
    st.SentenceTransformer(modules=[stm.Transformer(str(path))], device="cpu").save(str(tmp_path / "saved"))
    path = tmp_path / "saved"
    assert json.loads((path / "sentence_bert_config.json").read_text())["module_output_name"] == "sentence_embedding"
    assert close(load_subject(path).encode(TEXTS), theirs(path))


def older(path: Path) -> None:
    """Turn what version 6 saved into what version 2 saved."""
    entries = json.loads((path / "modules.json").read_text())
    for entry in entries:
        entry["type"] = "sentence_transformers.models." + entry["type"].rsplit(".", 1)[1]
    (path / "modules.json").write_text(json.dumps(entries))
    (path / "1_Pooling" / "config.json").write_text(
        json.dumps(
            {
                "word_embedding_dimension": 16,
                "pooling_mode_cls_token": True,
                "pooling_mode_mean_tokens": True,
                "pooling_mode_max_tokens": False,
                "pooling_mode_mean_sqrt_len_tokens": False,
            }
        )
    )
    (path / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 12, "do_lower_case": False}))


def test_older_types_and_switches(save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, "mean"), stm.Normalize())
    older(path)
    assert load_subject(path).encoder().notes[0].startswith("cls and mean pooling")
    assert agrees(path)


def test_a_transformer_in_a_folder_of_its_own(save: Callable[..., Path]) -> None:
    """Version 0.3 kept the transformer in a folder, and another config.json above it."""
    path = save(stm.Pooling(16, "mean"), stm.Normalize())
    older(path)
    expected = theirs(path)
    (path / "0_Transformer").mkdir()
    for file in [file for file in path.iterdir() if file.is_file() and file.name not in ("modules.json", "README.md")]:
        shutil.move(file, path / "0_Transformer" / file.name)
    (path / "config.json").write_text('{"__version__": "0.3.0"}')
    entries = json.loads((path / "modules.json").read_text())
    entries[0]["path"] = "0_Transformer"
    (path / "modules.json").write_text(json.dumps(entries))
    subject = load_subject(path)
    assert close(subject.encode(TEXTS), expected)
    assert len(subject.token_table()) == tiny.VOCABULARY


def test_an_asked_pooling_keeps_the_steps(save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, "mean"), stm.Normalize())
    other = save(stm.Pooling(16, "max"), stm.Normalize())
    expected = load_subject(other).encode(TEXTS)
    assert close(load_subject(path).encode(TEXTS, pooling="max"), expected)


def test_an_asked_pooling_that_does_not_fit_is_refused(save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, ("cls", "mean")), stm.Dense(32, 8))
    with pytest.raises(UsageError, match="`pooling` must give the 32 dimensions that 2_Dense takes, got 16"):
        load_subject(path).encode(TEXTS, pooling="mean")


def set_type(path: Path, index: int, kind: str) -> None:
    entries = json.loads((path / "modules.json").read_text())
    entries[index]["type"] = kind
    (path / "modules.json").write_text(json.dumps(entries))


@pytest.mark.parametrize(
    "kind", ["custom_st.Pooling", "sentence_transformers.models.WeightedLayerPooling", "os.path", "1_Pooling.Pooling"]
)
def test_unknown_modules_are_refused_by_name(kind: str, save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, "mean"), stm.Normalize())
    set_type(path, 2, kind)
    subject = load_subject(path)
    assert len(subject.token_table()) == tiny.VOCABULARY  # which needs no pooling
    with pytest.raises(
        InputError, match=f"got the type '{kind}', which is never run; choose a pooling yourself with `--po"
    ):
        subject.encode(TEXTS)
    encoder = subject.encoder(pooling="mean")
    assert encoder.notes[0] == f"mean pooling, as asked for, modules.json was left aside, for its {kind}"
    assert close(encoder.encode(TEXTS).vectors, theirs(save(stm.Pooling(16, "mean"))))


Change = Callable[[Path], None]
DAMAGE: dict[str, tuple[Change, str]] = {
    "another family": (
        lambda path: change(path / "config_sentence_transformers.json", model_type="CrossEncoder"),
        "must map a text to one vector, got 'CrossEncoder'; choose a pooling with `--pooling`",
    ),
    "a chat template": (
        lambda path: change(path / "sentence_bert_config.json", modality_config={"text": {}, "message": {}}),
        "got a chat template; choose a pooling",
    ),
    "another task": (
        lambda path: change(path / "sentence_bert_config.json", transformer_task="fill-mask"),
        "got 'fill-mask' by 'forward'",
    ),
    "no modules": (lambda path: (path / "modules.json").write_text("[]") and None, "there is no modules.json"),
    "modules that are no list": (lambda path: (path / "modules.json").write_text("{}") and None, "must be a JSON list"),
    "a module without a type": (lambda path: (path / "modules.json").write_text("[7]") and None, "`type` and `path`"),
    "a folder outside": (
        lambda path: (path / "modules.json").write_text('[{"type": "x", "path": "../../etc"}]') and None,
        "must name folders inside its own, got '../../etc'",
    ),
    "no pooling": (
        lambda path: (
            (path / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer", "path": ""}]')
            and None
        ),
        "must pool its tokens, got no Pooling in modules.json",
    ),
    "two encoders": (
        lambda path: set_type(path, 3, "sentence_transformers.models.Transformer"),
        "must list one encoder, one pooling and what follows",
    ),
    "an unknown pooling": (
        lambda path: change(path / "1_Pooling" / "config.json", pooling_mode="attention"),
        "must name known poolings, got 'attention'",
    ),
    "a pooling that is a number": (
        lambda path: change(path / "1_Pooling" / "config.json", pooling_mode=[7]),
        "must name known poolings, got '7'",
    ),
    "a pooling without a file": (
        lambda path: (path / "1_Pooling" / "config.json").unlink(),
        "`1_Pooling/config.json` must be readable, got No such file",
    ),
    "an unknown activation": (
        lambda path: change(path / "2_Dense" / "config.json", activation_function="os.system"),
        "must name an activation of torch.nn, got 'os.system'",
    ),
    "an activation that is a function": (
        lambda path: change(path / "2_Dense" / "config.json", activation_function="torch.hub.load"),
        "must name an activation of torch.nn, got 'torch.hub.load'",
    ),
    "a residual": (lambda path: change(path / "2_Dense" / "config.json", use_residual=True), "must have no residual"),
    "a dense layer of another size": (
        lambda path: change(path / "2_Dense" / "config.json", out_features=9),
        r"must hold linear.bias \(9,\), linear.weight \(9, 16\) by its config.json, got linear.bias \(8,\)",
    ),
    "a dense layer without weights": (
        lambda path: (path / "2_Dense" / "model.safetensors").rename(path / "2_Dense" / "pytorch_model.bin") and None,
        "must hold model.safetensors, got only pytorch_model.bin",
    ),
    "vectors of tokens": (
        lambda path: change(path / "3_Normalize" / "config.json", module_input_name="token_embeddings"),
        "the model gives one a token",
    ),
    "a default prompt that is not there": (
        lambda path: change(path / "config_sentence_transformers.json", default_prompt_name="passage"),
        "must name its default prompt 'passage' among its prompts",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused_in_one_line(damage: str, save: Callable[..., Path]) -> None:
    path = save(stm.Pooling(16, "mean"), stm.Dense(16, 8), stm.Normalize())
    harm, message = DAMAGE[damage]
    harm(path)
    if damage == "no modules":  # an empty list is as good as none
        assert message in load_subject(path).encoder().notes[0]
        return
    with pytest.raises(InputError, match=message) as error:
        load_subject(path).encode(TEXTS)
    assert "\n" not in str(error.value)
