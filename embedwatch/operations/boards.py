"""Every dashboard: what each of them shows, in which order, and how they lead to each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from embedwatch.operations.attention_rows import attention
from embedwatch.operations.daemon_rows import http, ingest, process
from embedwatch.operations.dashboard import dashboard
from embedwatch.operations.drift_rows import canaries, drift, references
from embedwatch.operations.model_rows import generation, layers, meaning, positions, scale, vocabulary
from embedwatch.operations.overview import overview
from embedwatch.operations.pair_rows import indexes, pairs
from embedwatch.operations.panels import Panel
from embedwatch.operations.run_rows import gradients, outputs, training, watching
from embedwatch.operations.space_rows import geometry, groups, norms, rows, spectrum, tokens
from embedwatch.operations.uids import ALIGNMENT, ATTENTION, DAEMON, GEOMETRY, NORMS, OVERVIEW, TRAINING

__all__ = ["boards"]


def boards() -> dict[str, dict[str, Any]]:
    """Return every dashboard by its file name, the overview first."""
    return {
        f"{OVERVIEW}.json": overview(),
        **dict(
            (
                _board(
                    NORMS,
                    "Norms and drift",
                    "Lengths of vectors, and rows beside their reference and fixed texts beside themselves.",
                    [*norms(), *drift(), *references(), *canaries()],
                ),
                _board(
                    GEOMETRY,
                    "Geometry",
                    "How vectors lie to each other: directions, dimensions, groups, words.",
                    [*geometry(), *spectrum(), *groups(), *rows(), *vocabulary(), *meaning()],
                ),
                _board(
                    ATTENTION,
                    "Attention and positions",
                    "What heads look at, and how a model tells places in a text apart.",
                    [*attention(), *positions()],
                ),
                _board(
                    ALIGNMENT,
                    "Alignment",
                    "The same items in two spaces, maps between them, and indexes beside the model that asks them.",
                    [*pairs(), *indexes()],
                ),
                _board(
                    TRAINING,
                    "Training run",
                    "Loss, gradients, the token table through time, and what checkpoints are examined for.",
                    [*training(), *gradients(), *outputs(), *tokens(), *scale(), *layers(), *generation()],
                ),
                _board(
                    DAEMON,
                    "Daemon",
                    "What the daemon takes and refuses, what watching costs and leaves out, process and scrapes.",
                    [*ingest(), *http(), *process(), *watching()],
                ),
            )
        ),
    }


def _board(uid: str, title: str, description: str, panels: Iterable[Panel]) -> tuple[str, dict[str, Any]]:
    made = dashboard(f"embedwatch / {title}", uid=uid, description=description, panels=panels)
    return f"{uid}.json", made
