"""The lists that come with the package, and files of other people."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from embedwatch.core.errors import EmbedwatchError, InputError, UsageError
from embedwatch.lexicons import RELATIONS, SHIPPED, Lexicon, WordGroup, load_lexicon, load_lexicons
from embedwatch.lexicons.lexicon import TOPIC_WORDS
from embedwatch.lexicons.reading import LARGEST_FILE, MOST_WORDS

TSV = (
    "# Mine.\nlanguage\tde\ntemplate\tSie sagten {word}.\n"
    "synonyms\tgroß\triesig\ncontrasts\theiß\tkalt\ntopic\tTiere\tHund\tKatze\tPferd\n"
)
YAML = """
origin: Mine.
language: de
templates: ["Sie sagten {word}."]
synonyms: [[groß, riesig]]
contrasts:
  - [heiß, kalt]
topics:
  Tiere: [Hund, Katze, Pferd]
"""


def write(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize("language", SHIPPED)
def test_our_lists_are_what_they_say(language: str) -> None:
    lexicon = load_lexicon(language)
    assert lexicon.language == language
    assert "Written by hand for embedwatch" in lexicon.origin
    assert lexicon.templates
    assert all(template.count("{word}") == 1 for template in lexicon.templates)
    sizes = {relation: len(lexicon.of(relation)) for relation in RELATIONS}
    assert sizes["synonyms"] >= 90
    assert sizes["contrasts"] >= 80
    assert sizes["topics"] >= 30
    assert all(len(group.words) >= TOPIC_WORDS for group in lexicon.of("topics"))
    pairs = [frozenset(group.words) for relation in RELATIONS[:2] for group in lexicon.of(relation)]
    assert all(len(pair) == 2 for pair in pairs)
    assert len(set(pairs)) == len(pairs)  # no pair twice, none both synonym and contrast
    inside = {frozenset(pair) for group in lexicon.of("topics") for pair in combinations(group.words, 2)}
    assert len(inside) > 1000


def test_yaml_and_tsv_say_the_same(tmp_path: Path) -> None:
    files = [write(tmp_path, "words.tsv", TSV), write(tmp_path, "words.yaml", YAML)]
    first, second = map(load_lexicon, files)
    assert first == second
    assert first.origin == "Mine."
    assert first.fingerprint() == second.fingerprint()
    assert first.of("topics") == [WordGroup("topics", "Tiere", ("Hund", "Katze", "Pferd"))]
    assert first.of("synonyms")[0].name == "groß / riesig"
    windows = write(tmp_path, "windows.tsv", b"\xef\xbb\xbf" + TSV.replace("\n", "\r\n").encode())
    assert load_lexicon(windows) == first


def test_what_may_be_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path, "words.tsv", TSV)
    own = Lexicon("xx", (WordGroup("synonyms", "a / b", ("a", "b")),))
    for name in (None, "default", "classic"):
        assert [lexicon.language for lexicon in load_lexicons(name)] == ["en", "zh"]
    assert [lexicon.language for lexicon in load_lexicons(["zh", path, own])] == ["zh", "de", "xx"]
    assert load_lexicons(str(path)) == load_lexicons(path)
    with pytest.raises(UsageError, match='did you mean "classic"'):
        load_lexicons("clasic")


HOSTILE = {
    "empty.tsv": "",
    "only_comments.tsv": "# nothing\n\n",
    "blanks_for_tabs.tsv": "synonyms big large\n",
    "unknown_line.tsv": "antonyms\thot\tcold\n",
    "one_word.tsv": "synonyms\tbig\n",
    "same_word_twice.tsv": "synonyms\tbig\tbig\n",
    "topic_without_words.tsv": "topic\tanimals\n",
    "empty_cell.tsv": "synonyms\tbig\t\tlarge\n",
    "control.tsv": "synonyms\tbig\tlar\x1bge\n",
    "long_word.tsv": f"synonyms\tbig\t{'x' * 81}\n",
    "long_name.tsv": f"topic\t{'x' * 81}\tone\ttwo\n",
    "no_slot.tsv": "template\tThey said it.\nsynonyms\tbig\tlarge\n",
    "two_slots.tsv": "template\t{word} {word}\nsynonyms\tbig\tlarge\n",
    "no_language.tsv": "language\t\nsynonyms\tbig\tlarge\n",
    "latin1.tsv": "synonyms\tgro\xdf\triesig\n".encode("latin-1"),
    "binary.tsv": bytes(range(256)),
    "too_large.tsv": b"#" * (LARGEST_FILE + 1),
    "too_many.tsv": "topic\tall\t" + "\t".join(f"w{n}" for n in range(MOST_WORDS + 1)),
    "list.yaml": "- [big, large]\n",
    "text.yaml": "big, large\n",
    "unknown_key.yaml": "synonym: [[big, large]]\n",
    "flat.yaml": "synonyms: [big, large]\n",
    "mapping.yaml": "synonyms: {a: [big, large]}\n",
    "topics_list.yaml": "topics: [[dog, cat]]\n",
    "number.yaml": "synonyms: [[1, 2]]\n",
    "truth.yaml": "contrasts: [[yes, no]]\n",
    "null.yaml": "synonyms: [[~, big]]\n",
    "templates.yaml": "templates: text {word}\nsynonyms: [[big, large]]\n",
    "language.yaml": "language: [en]\nsynonyms: [[big, large]]\n",
    "broken.yaml": "synonyms: [[big, large\n",
    "laughs.yaml": "a: &a [x, y]\nb: &b [*a, *a]\nsynonyms: [*b, *b]\n",
    "object.yaml": "synonyms: !!python/object/apply:os.system ['true']\n",
    "deep.yaml": "[" * 20_000,
    "zero.yaml": b"synonyms: [[big\0, large]]\n",
    "no_day.yaml": "synonyms: [[2020-99-99, big]]\n",
    "broken.json": '{"synonyms": [["big", "large"]',
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_give_one_clear_line(tmp_path: Path, name: str) -> None:
    path = write(tmp_path, name, HOSTILE[name])
    with pytest.raises(InputError) as caught:
        load_lexicon(path)
    message = str(caught.value)
    assert "\n" not in message
    assert message.isprintable()
    assert " must " in message
    assert "; " in message or ", got" in message
    assert len(message) < 400


@pytest.mark.parametrize("name", ["fr", "no/such/file.tsv", "a\0b", "x" * 5000, ""])
def test_what_is_no_file_is_refused(name: str) -> None:
    with pytest.raises(EmbedwatchError) as caught:
        load_lexicons(name)
    assert len(str(caught.value)) < 300


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError):
        load_lexicon(tmp_path)
