"""`embedwatch generate` on runs of random weights: texts, JSON, wrong input."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from embedwatch.cli import main
from embedwatch_model.config import ModelConfig
from embedwatch_model.opening import open_model
from embedwatch_model.storage import save_weights, write_json
from embedwatch_model.text import BEGIN, END, decode, encode, open_tokenizer, save_tokenizer, train_tokenizer
from embedwatch_model.transformer import Transformer

LINES = ["the cat sat on the mat", "der Hund schläft", "慢慢来 the end\n"]


def make_run(folder: Path, **overrides: Any) -> Path:
    folder.mkdir(exist_ok=True)
    tokenizer = train_tokenizer(LINES * 9, vocabulary=280)
    settings = {"d_model": 16, "heads": 2, "layers": 1, "length": 32, "tied": False, **overrides}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Transformer(ModelConfig(vocabulary=tokenizer.get_vocab_size(), **settings))
    save_tokenizer(tokenizer, folder)
    write_json(folder / "config.json", {"model_type": "embedwatch", **model.config.to_json()})
    save_weights(model, folder / "model.safetensors")
    return folder


@pytest.fixture
def decoder(tmp_path: Path) -> Path:
    return make_run(tmp_path / "decoder")


@pytest.fixture
def translator(tmp_path: Path) -> Path:
    return make_run(tmp_path / "translator", kind="encoder_decoder")


def run(*arguments: object, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, ["generate", *map(str, arguments)], input=stdin)


def written(*arguments: object, stdin: str | bytes | None = None) -> list[dict[str, Any]]:
    result = run(*arguments, "--json", stdin=stdin)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    found: list[dict[str, Any]] = json.loads(result.stdout)["texts"]
    return found


def refused(result: Result, *words: str) -> None:
    """One line on standard error that holds the words, and status 2."""
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("embedwatch: ")
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def greedy(model: Transformer, ids: list[int], count: int, **source: torch.Tensor) -> list[int]:
    new: list[int] = []
    while len(new) < count and END not in new:
        new.append(int(model(torch.tensor([[*ids, *new]]), **source).logits[0, -1].argmax()))
    return new


def test_one_text_stands_alone_behind_its_prompt(decoder: Path) -> None:
    result = run(decoder, "the cat", "--max-tokens", 5)
    assert result.exit_code == 0
    assert result.stderr == ""
    [text] = written(decoder, "the cat", "--max-tokens", 5)
    assert result.stdout == f"the cat{text['text']}\n"


def test_several_texts_are_numbered(decoder: Path) -> None:
    lines = run(decoder, "the", "der", "--count", 2, "--max-tokens", 3).stdout.splitlines()
    assert [line for line in lines if line.startswith("---")] == [f"--- {n} of 4" for n in range(1, 5)]


def test_json_says_all_there_is(decoder: Path) -> None:
    result = json.loads(run(decoder, "the", "--max-tokens", 4, "--json").stdout)
    assert result["run"] == str(decoder)
    [text] = result["texts"]
    assert set(text) == {"prompt", "text", "tokens", "finished", "log_probability", "score"}
    assert text["prompt"] == "the"
    assert text["tokens"] <= 4
    assert text["log_probability"] == text["score"] < 0


def test_greedy_is_what_the_model_says_after_the_begin_token(decoder: Path) -> None:
    model, tokenizer = open_model(decoder)
    ids = [BEGIN, *encode(tokenizer, "the cat")]
    [text] = written(decoder, "the cat", "--max-tokens", 6, "--temperature", 0)
    assert text["text"] == decode(tokenizer, greedy(model, ids, 6))


def test_a_translator_reads_the_text_and_an_end_token(translator: Path) -> None:
    model, tokenizer = open_model(translator)
    source = torch.tensor([[*encode(tokenizer, "der Hund"), END]])
    [text] = written(translator, "der Hund", "--max-tokens", 6, "--temperature", 0)
    assert text["text"] == decode(tokenizer, greedy(model, [BEGIN], 6, source=source))
    logs = model(torch.tensor([[BEGIN]]), source=source).logits[0, -1].detach().log_softmax(-1)
    [first] = written(translator, "der Hund", "--max-tokens", 1, "--temperature", 0)
    assert first["log_probability"] == pytest.approx(float(logs.max()), rel=1e-5)


def test_the_seed_decides_and_nought_is_the_default(decoder: Path) -> None:
    first, again, other = (written(decoder, "the", "--seed", seed) for seed in (0, 0, 1))
    assert first == again == written(decoder, "the")
    assert first != other


def test_options_reach_the_rules(decoder: Path) -> None:
    greedy = written(decoder, "the", "--temperature", 0)
    assert written(decoder, "the", "--top-k", 1) == greedy
    assert written(decoder, "the", "--top-p", 1e-6) == greedy
    tokenizer = open_tokenizer(decoder)
    [text] = written(decoder, "the", "--no-repeat-ngram", 1, "--max-tokens", 30, "--temperature", 0)
    ids = encode(tokenizer, text["text"])
    assert text["tokens"] == 30 or text["finished"]
    assert text != greedy[0]
    assert len(ids) > 1
    assert written(decoder, "the", "--repetition-penalty", 9, "--temperature", 0) != greedy


def test_beams(decoder: Path) -> None:
    options = ["--beams", 6, "--groups", 3, "--diversity", 9, "--count", 3, "--max-tokens", 4, "--length-penalty"]
    for penalty, divisor in (("1", 9 / 6), ("power:1", 4), ("0", 1)):
        texts = written(decoder, "the", *options, penalty)
        assert len({text["text"] for text in texts}) == 3
        assert [text["score"] for text in texts] == sorted((text["score"] for text in texts), reverse=True)
        for text in texts:
            if not text["finished"]:
                assert math.isclose(text["score"], text["log_probability"] / divisor, rel_tol=1e-5)
    assert written(decoder, "the", "--beams", 1) == [
        {**text, "score": written(decoder, "the", "--beams", 1)[0]["score"]}
        for text in written(decoder, "the", "--temperature", 0)
    ]


def test_stop_ends_a_text_and_is_left_out(decoder: Path) -> None:
    [free] = written(decoder, "the", "--seed", 3)
    piece = free["text"][5:7]
    [text] = written(decoder, "the", "--seed", 3, "--stop", piece, "--stop", "no such text")
    assert text["text"] == free["text"][: free["text"].index(piece)]
    assert text["finished"]
    assert text["tokens"] < free["tokens"]


def test_prompts_from_standard_input_one_a_line(decoder: Path) -> None:
    lines = "the cat\n\nder Hund\r\n慢\n"
    texts = written(decoder, "first", "-", "--max-tokens", 2, stdin=lines)
    assert [text["prompt"] for text in texts] == ["first", "the cat", "der Hund", "慢"]


def test_more_prompts_than_fit_a_batch_are_all_answered_as_alone(decoder: Path) -> None:
    prompts = [f"the {number}" for number in range(35)]
    texts = written(decoder, *prompts, "--temperature", 0, "--max-tokens", 3)
    assert [text["prompt"] for text in texts] == prompts
    assert texts[20]["text"] == written(decoder, prompts[20], "--temperature", 0, "--max-tokens", 3)[0]["text"]


def test_an_empty_prompt_begins_from_nothing(decoder: Path) -> None:
    assert written(decoder, "", "--max-tokens", 3)[0]["tokens"] <= 3


def test_an_encoder_decoder_prints_what_it_wrote_alone(translator: Path) -> None:
    result = run(translator, "der Hund", "--beams", 2, "--max-tokens", 5)
    [text] = written(translator, "der Hund", "--beams", 2, "--max-tokens", 5)
    assert result.stdout == f"{text['text']}\n"
    other = written(translator, "das ist etwas anderes", "--beams", 2, "--max-tokens", 5)
    assert other[0]["log_probability"] != text["log_probability"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--temperature", "-1"], ["`temperature` must be a number from 0 up, got -1.0"]),
        (["--temperature", "0", "--count", "2"], ["`count` must be 1 at temperature 0, got 2"]),
        (["--top-k", "0"], ["`top_k` must be a whole number from 1 up, got 0"]),
        (["--top-p", "1.5"], ["`top_p` must be a probability above 0", "got 1.5"]),
        (["--repetition-penalty", "0"], ["`repetition_penalty` must be", "got 0.0"]),
        (["--no-repeat-ngram", "-1"], ["`no_repeat_ngram` must be", "got -1"]),
        (["--max-tokens", "0"], ["`max_tokens` must be at least 1, got 0"]),
        (["--count", "0"], ["`count` must be at least 1, got 0"]),
        (["--beams", "0"], ["`beams` must be at least 1, got 0"]),
        (["--seed", "-1"], ["`--seed` must be a number from 0 to 2^63 - 1, got -1"]),
        (["--seed", str(2**64)], ["`--seed` must be a number from 0"]),
        (["--seed", "one"], ["'one' is not a valid integer"]),
        (["--groups", "2"], ["`--groups` must not be given without --beams, got 2; add --beams 4"]),
        (["--length-penalty", "1"], ["`--length-penalty` must not be given without --beams"]),
        (["--beams", "4", "--temperature", "1"], ["`--temperature` must not be given with --beams"]),
        (["--beams", "4", "--seed", "1"], ["`--seed` must not be given with --beams"]),
        (["--beams", "4", "--groups", "3"], ["`groups` must be a divisor of `beams` 4, got 3"]),
        (["--beams", "4", "--count", "5"], ["`count` must be at most `beams` 4, got 5"]),
        (["--beams", "4", "--diversity", "nan"], ["`diversity` must be a number from 0 up, got nan"]),
        (
            ["--beams", "4", "--length-penalty", "much"],
            ["`--length-penalty` must be a number or power:NUMBER, got 'much'"],
        ),
        (["--beams", "4", "--length-penalty", "nan"], ["`length_penalty` must be a number above 0, got nan"]),
        (["--stop", ""], ["`texts` must each hold something, got an empty one"]),
    ],
)
def test_wrong_options(decoder: Path, options: list[str], words: list[str]) -> None:
    refused(run(decoder, "the", *options), *words)


def test_too_many_tokens_for_learned_positions(tmp_path: Path) -> None:
    learned = make_run(tmp_path / "learned", positions="learned")
    refused(run(learned, "", "--max-tokens", 100), "`max_tokens` must be at most 32 after 1 tokens, got 100")


def test_what_is_no_run(decoder: Path, tmp_path: Path) -> None:
    refused(run(tmp_path / "nowhere", "the"), "nowhere` must be a run with a checkpoint, got no folder; train one")
    refused(run(tmp_path, "the"), "must be a run with a checkpoint, got a folder without config.json")
    config = json.loads((decoder / "config.json").read_text())
    for content, words in (
        ("{", ["config.json` must be a JSON file"]),
        (json.dumps({**config, "model_type": "bert"}), ["must have the model_type 'embedwatch', got 'bert'"]),
        (json.dumps({"model_type": "embedwatch"}), ["must have a vocabulary"]),
        (json.dumps({**config, "d_model": None}), ["config.json` must be a whole configuration", "'NoneType'"]),
        (json.dumps({**config, "d_model": 32}), ["model.safetensors` must hold the weights of its config.json"]),
        (json.dumps({**config, "layers": "two"}), ["`layers` must be at least 1, got 'two'"]),
        (json.dumps({**config, "kind": "encoder"}), ["model.safetensors` must hold the weights"]),
    ):
        (decoder / "config.json").write_text(content)
        refused(run(decoder, "the"), *words)
    (decoder / "config.json").write_text(json.dumps(config))
    (decoder / "tokenizer.json").unlink()
    refused(run(decoder, "the"), "tokenizer.json` must be readable")
    (decoder / "model.safetensors").write_bytes(b"short")
    refused(run(decoder, "the"), "model.safetensors` must be whole safetensors")


def test_an_encoder_does_not_write(tmp_path: Path) -> None:
    refused(run(make_run(tmp_path / "encoder", kind="encoder"), "the"), 'to write, got kind "encoder"; it only reads')


def test_a_tokenizer_of_a_larger_model(decoder: Path) -> None:
    save_tokenizer(train_tokenizer(["many other words are learned here"] * 9, vocabulary=300), decoder)
    refused(run(decoder, "the"), "must hold a tokenizer of at most", "the files are of two models")


def test_prompts_that_are_no_text(decoder: Path) -> None:
    refused(run(decoder, "-", stdin=b"ab\xff"), "standard input must be UTF-8, got byte 0xff; convert it")
    refused(run(decoder, "-", stdin="\n \n"), "got only empty lines on standard input")
    refused(run(decoder, "a\udcff"), "`prompt` must be Unicode text, got 'a\\udcff'")
    refused(run(decoder), "PROMPT")


def test_help_costs_no_torch() -> None:
    code = (
        "import sys\nfrom embedwatch.cli import main\n"
        "try: main(['generate', '--help'])\nexcept SystemExit: pass\nprint('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "False"
