"""Reads word groups: those that come with the package, and files of other people, which are untrusted."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from embedwatch.core.errors import InputError, UsageError, did_you_mean
from embedwatch.lexicons.lexicon import RELATIONS, Lexicon, WordGroup

__all__ = ["SHIPPED", "load_lexicon", "load_lexicons"]

SHIPPED = {"en": "english.tsv", "zh": "chinese.tsv"}
"""Language to the file that comes with the package."""
ALL = ("default", "classic")
"""Names that mean all of these."""
LARGEST_FILE = 1 << 18
DEEPEST = 8
"""Levels of a YAML file; ours have four."""
MOST_WORDS = 3_000
"""Different words of one file: all pairs of them are compared."""
LONGEST_WORD = 80
MOST_TEMPLATES = 16
SLOT = "{word}"
OTHER = "user"
"""Language of a file that names none."""
YAML_SUFFIXES = (".yaml", ".yml", ".json")
SINGULAR = {"synonyms": "synonyms", "contrasts": "contrasts", "topic": "topics", "topics": "topics"}
"""First column of a line in a TSV file to the relation that it means."""
SHOWN = 60


def load_lexicons(words: Any = None) -> list[Lexicon]:
    """Return the lexicons that somebody asks for.

    Args:
        words: `None`, `default` or `classic` for all that come with the package, one of their languages, a path of a
            YAML or TSV file, a `Lexicon`, or several of these in a list.

    Raises:
        InputError: if a file cannot be read.
        UsageError: if there is no such lexicon.

    Example:
        >>> [lexicon.language for lexicon in load_lexicons()]
        ['en', 'zh']
    """
    if words is None or (isinstance(words, str) and words in ALL):
        return [load_lexicon(language) for language in SHIPPED]
    if isinstance(words, (list, tuple)):
        return [lexicon for each in words for lexicon in load_lexicons(each)]
    return [words if isinstance(words, Lexicon) else load_lexicon(words)]


def load_lexicon(name: str | Path) -> Lexicon:
    """Return one lexicon by its language, or from a file.

    A TSV file has one group a line: `synonyms`, `contrasts` or `topic`, a tab, for a topic its name and a tab, then
    words with tabs between them; also `language`, `template` and `origin` with a value, and comments after `#`. A YAML
    file has the keys `language`, `templates`, `origin`, `synonyms` and `contrasts`, which are lists of lists of words,
    and `topics`, whose names have lists of words.

    Raises:
        InputError: if the file cannot be read as that; one line says where and why.
        UsageError: if it is neither a language nor a file.

    Example:
        >>> load_lexicon("en").of("contrasts")[0].words
        ('hot', 'cold')
        >>> load_lexicon("fr")
        Traceback (most recent call last):
        ...
        embedwatch.core.errors.UsageError: `words` must be one of en, zh, default or a file, got 'fr'; ...
    """
    if isinstance(name, str) and name in SHIPPED:
        resource = files("embedwatch.lexicons") / SHIPPED[name]
        return _from_tsv(resource.read_text(encoding="utf-8"), SHIPPED[name])
    path = Path(name)
    if not _is_file(path):
        hint = did_you_mean(str(name), [*SHIPPED, *ALL])
        raise UsageError(
            f"`words` must be one of {', '.join(SHIPPED)}, default or a file, got {_shown(str(name))}; "
            f"{hint or 'give the path of a YAML or TSV file'}"
        )
    text = _text(path)
    return _from_yaml(text, str(path)) if path.suffix.lower() in YAML_SUFFIXES else _from_tsv(text, str(path))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name too long, or with a zero byte
        return False


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise InputError(f"`{path}` must be at most {LARGEST_FILE:,} bytes, got more; keep fewer words")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"`{path}` must be readable, got {error.strerror}; check its permissions") from error
    except UnicodeDecodeError as error:
        raise InputError(f"`{path}` must be UTF-8, got byte {error.start:,} that is not; save it as UTF-8") from error


def _from_tsv(text: str, label: str) -> Lexicon:
    language, origin = OTHER, ""
    templates: list[str] = []
    groups: list[tuple[str, str, str, Sequence[Any]]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            origin = origin or line.lstrip("# ").strip()
            continue
        what, *cells = [cell.strip() for cell in line.rstrip("\t\r ").split("\t")]
        place = f"{label}:{number}"
        if what in SINGULAR:
            relation = SINGULAR[what]
            named = cells[0] if relation == "topics" and cells else ""
            groups.append((place, relation, named, cells[1:] if relation == "topics" else cells))
        elif what in ("language", "template", "origin") and len(cells) == 1:
            if what == "template":
                templates.append(cells[0])
            elif what == "language":
                language = cells[0]
            else:
                origin = cells[0]
        else:
            raise InputError(
                f"{place} must begin with synonyms, contrasts, topic, language, template or origin and a tab, "
                f"got {_shown(what)}; put tabs between the words"
            )
    return _lexicon(label, language, origin, templates, groups)


def _from_yaml(text: str, label: str) -> Lexicon:
    data = _yaml(text, label)
    if not isinstance(data, Mapping):
        raise InputError(f"`{label}` must hold keys such as `synonyms`, got {_kind(data)}; see `docs/meaning.md`")
    known = ("language", "origin", "templates", *RELATIONS)
    for key in data:
        if key not in known:
            hint = did_you_mean(str(key), known) or f"use {', '.join(known)}"
            raise InputError(f"`{label}` must hold known keys, got {_shown(str(key))}; {hint}")
    groups: list[tuple[str, str, str, Sequence[Any]]] = []
    for relation in RELATIONS:
        found = data.get(relation)
        if relation == "topics" and isinstance(found, Mapping):
            listed = [(f"{label}: topics: {_shown(str(name))}", str(name), words) for name, words in found.items()]
        elif isinstance(found, list) and relation != "topics":
            listed = [(f"{label}: {relation}: {place + 1}", "", words) for place, words in enumerate(found)]
        elif found is None:
            continue
        else:
            wanted = "names with lists of words" if relation == "topics" else "a list of lists of words"
            raise InputError(f"`{label}` must have {wanted} under `{relation}`, got {_kind(found)}; write it so")
        for place, name, words in listed:
            if not isinstance(words, list):
                raise InputError(f"{place} must be a list of words, got {_kind(words)}; write [one, two]")
            groups.append((place, relation, name, words))
    templates = data.get("templates") or []
    if not isinstance(templates, list):
        raise InputError(f"`{label}` must have a list under `templates`, got {_kind(templates)}; write it so")
    language, origin = data.get("language", OTHER), data.get("origin", "")
    return _lexicon(label, language, str(origin), templates, groups)


def _yaml(text: str, label: str) -> Any:
    """Return what a YAML text says. What is deep, or refers to its own parts, may take without end, and is refused."""
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where it was built
    depth = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                raise InputError(f"`{label}` must hold no aliases, got one; write the words out")
            if depth > DEEPEST:
                raise InputError(f"`{label}` must hold lists of words, got {DEEPEST} levels and more; write it flat")
        return loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        what = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error).partition("\n")[0]
        raise InputError(
            f"`{label}` must be YAML, got {_shown(str(what) or type(error).__name__)}{where}; correct it there"
        ) from error


def _lexicon(
    label: str,
    language: Any,
    origin: str,
    templates: Sequence[Any],
    groups: Iterable[tuple[str, str, str, Sequence[Any]]],
) -> Lexicon:
    if not isinstance(language, str) or not 1 <= len(language) <= LONGEST_WORD or not language.isprintable():
        raise InputError(f"`{label}` must name its language in a word, got {_shown(str(language))}; such as `en`")
    if len(templates) > MOST_TEMPLATES:
        raise InputError(f"`{label}` must have at most {MOST_TEMPLATES} templates, got {len(templates):,}; keep fewer")
    for template in templates:
        if not isinstance(template, str) or template.count(SLOT) != 1 or not template.isprintable():
            raise InputError(f"`{label}` must have {SLOT} once in each template, got {_shown(str(template))}; add it")
    found = tuple(_groups(groups))
    words = len({word for group in found for word in group.words})
    if not found:
        raise InputError(f"`{label}` must hold groups of words, got none; write synonyms, contrasts or topics")
    if words > MOST_WORDS:
        raise InputError(f"`{label}` must hold at most {MOST_WORDS:,} different words, got {words:,}; keep fewer")
    return Lexicon(language, found, tuple(templates), origin)


def _groups(groups: Iterable[tuple[str, str, str, Sequence[Any]]]) -> Iterator[WordGroup]:
    for place, relation, name, words in groups:
        cleaned = [_word(word, place) for word in words]
        distinct = tuple(dict.fromkeys(cleaned))
        if len(distinct) < 2:
            raise InputError(
                f"{place} must hold two different words or more, got {len(distinct)}; add words with tabs or commas"
            )
        name = name.strip()
        if len(name) > LONGEST_WORD or (name and not name.isprintable()):
            raise InputError(f"{place} must have a name of at most {LONGEST_WORD} characters, got {_shown(name)}")
        yield WordGroup(relation, name or " / ".join(distinct)[:LONGEST_WORD], distinct)


def _word(word: Any, place: str) -> str:
    if isinstance(word, bool):  # YAML 1.1 reads yes, no, on and off as truth values
        raise InputError(f"{place} must hold words, got {word!r}; put words such as yes, no, on, off in quotes")
    if not isinstance(word, str):
        raise InputError(f"{place} must hold words, got {_kind(word)}; put it in quotes")
    cleaned = unicodedata.normalize("NFC", word.strip())
    if not 1 <= len(cleaned) <= LONGEST_WORD or not cleaned.isprintable():
        raise InputError(f"{place} must hold words of 1 to {LONGEST_WORD} characters, got {_shown(word)}; correct it")
    return cleaned


def _kind(value: Any) -> str:
    return {dict: "a mapping", list: "a list", str: "text", type(None): "nothing"}.get(
        type(value), f"a {type(value).__name__}"
    )


def _shown(text: str) -> str:
    return repr(text if len(text) <= SHOWN else text[: SHOWN - 1] + "…")
