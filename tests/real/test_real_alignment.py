"""Maps between two real models of one dimension, from texts alone."""

from __future__ import annotations

import runpy
import sysconfig
from pathlib import Path

import pytest

from embedwatch import Aligner, fit_aligner
from embedwatch.align.applying import apply_aligner
from embedwatch.align.pair_inputs import Recipe
from embedwatch.core.errors import InputError
from embedwatch.loading import load_subject
from embedwatch.sources.subject import EncodedTexts

pytestmark = [pytest.mark.real, pytest.mark.slow]

EXAMPLE = Path(__file__).parents[2] / "examples" / "stdlib_sentences.py"
E5_RECIPE = Recipe(prefix="query: ")
TEXTS, OTHERS = 600, 100


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Sentences to fit with, and others."""
    found = sorted(runpy.run_path(str(EXAMPLE))["sentences"](Path(sysconfig.get_path("stdlib"))), key=len)
    spread = found[:: len(found) // (TEXTS + OTHERS)][: TEXTS + OTHERS]
    folder = tmp_path_factory.mktemp("texts")
    parts = [text for place, text in enumerate(spread) if place % 7], spread[::7]
    for name, lines in zip(("fit", "others"), parts, strict=True):
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder / "fit.txt", folder / "others.txt"


@pytest.fixture(scope="module")
def aligner(e5: Path, minilm: Path, texts: tuple[Path, Path]) -> Aligner:
    return fit_aligner(
        e5, minilm, text=texts[0], recipes=(E5_RECIPE, Recipe()), try_methods=("rotation", "procrustes", "ridge_1")
    )


def test_centring_decides(aligner: Aligner) -> None:
    by = {each["method"]: each for each in aligner.report["judged"]}
    assert aligner.method == "procrustes"
    assert aligner.source.anisotropy > 0.8
    assert by["procrustes"]["recall_1"][0] > by["rotation"]["recall_1"][0] + 0.2
    assert any("uncentred" in warning for warning in aligner.report["warnings"])


def test_texts_of_the_same_model_and_recipe_are_mapped(
    aligner: Aligner, e5: Path, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    source = EncodedTexts(load_subject(e5), texts[1], prefix="query: ")
    found = apply_aligner(aligner, source, tmp_path / "mapped.npy", recipe=E5_RECIPE)
    assert found.rows == OTHERS
    assert found.kinship is not None
    assert found.kinship > 0.4


def test_another_recipe_and_another_model_are_refused(
    aligner: Aligner, e5: Path, minilm: Path, texts: tuple[Path, Path], tmp_path: Path
) -> None:
    other = EncodedTexts(load_subject(e5), texts[1], prefix="passage: ")
    with pytest.raises(InputError, match="must come from the model"):
        apply_aligner(aligner, other, tmp_path / "x.npy", recipe=Recipe(prefix="passage: "))
    source = EncodedTexts(load_subject(minilm), texts[1])
    with pytest.raises(InputError, match="must come from the model"):
        apply_aligner(aligner, source, tmp_path / "x.npy")
    rows = next(iter(source.batches(OTHERS))).rows
    with pytest.raises(InputError, match="kinship"):
        aligner.transform(rows)
