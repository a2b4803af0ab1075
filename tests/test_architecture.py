"""The import rules hold, and each of them can fail."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import import_rules as rules
from tests.import_rules import Project, project_of

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
Rule = Callable[[Project], list[str]]
PLUGIN = 'class X(Base):\n    """X."""\n    name = "x"\n'

ADAPTER = {"embedwatch.integrations.transformers": "from transformers import TrainerCallback"}

BREACHES: dict[str, tuple[Rule, dict[str, str]]] = {
    "core imports numpy": (rules.core_is_standard_library, {"embedwatch.core.a": "import numpy as np"}),
    "core imports numpy late": (rules.core_is_standard_library, {"embedwatch.core.a": "def f():\n    import numpy"}),
    "core imports a sibling": (rules.core_is_standard_library, {"embedwatch.core.a": "from embedwatch.batch import X"}),
    "core imports by name": (
        rules.core_is_standard_library,
        {"embedwatch.core.a": "import importlib\nx = importlib.import_module('torch')"},
    ),
    "geometry imports batch": (rules.layers, {"embedwatch.geometry.a": "from embedwatch.batch import VectorBatch"}),
    "geometry imports it for types": (
        rules.layers,
        {"embedwatch.geometry.a": "if TYPE_CHECKING:\n    from embedwatch.batch import X"},
    ),
    "batch imports sketches": (rules.layers, {"embedwatch.batch": "import embedwatch.sketches.base"}),
    "hashing imports batch": (rules.layers, {"embedwatch.hashing": "from embedwatch import batch"}),
    "sketches import stats": (rules.layers, {"embedwatch.sketches.a": "from embedwatch.stats import norms"}),
    "sketches import it relatively": (rules.layers, {"embedwatch.sketches.a": "from ..stats import norms"}),
    "stats import reference": (rules.layers, {"embedwatch.stats.a": "from embedwatch.reference import Reference"}),
    "checks import batch": (rules.layers, {"embedwatch.checks.a": "from embedwatch.batch import VectorBatch"}),
    "sinks import sources": (rules.layers, {"embedwatch.sinks.a": "from embedwatch.sources.npy import Npy"}),
    "a statistic imports a statistic": (
        rules.plugins_stand_alone,
        {"embedwatch.stats.a": "from embedwatch.stats.b import X", "embedwatch.stats.b": PLUGIN},
    ),
    "a statistic imports a helper": (
        rules.plugins_stand_alone,
        {"embedwatch.stats.a": "from embedwatch.stats.b import f", "embedwatch.stats.b": "def f(): ..."},
    ),
    "a source imports a source": (
        rules.plugins_stand_alone,
        {"embedwatch.sources.a": "from .b import X", "embedwatch.sources.b": PLUGIN},
    ),
    "a sink imports a helper of sources": (
        rules.plugins_stand_alone,
        {"embedwatch.sinks.a": "from embedwatch.sources import b", "embedwatch.sources.b": "def f(): ..."},
    ),
    "cli imports torch": (rules.light_modules_stay_light, {"embedwatch.cli.a": "import torch.nn as nn"}),
    "cli imports torch through another": (
        rules.light_modules_stay_light,
        {"embedwatch.cli.a": "from embedwatch.batch import X", "embedwatch.batch": "from torch import Tensor"},
    ),
    "a sink's package imports torch": (
        rules.light_modules_stay_light,
        {"embedwatch.sinks": "import torch", "embedwatch.sinks.a": ""},
    ),
    "the root imports torch": (rules.light_modules_stay_light, {"embedwatch": "import torch", "embedwatch.x": ""}),
    "a check imports torch in a try": (
        rules.light_modules_stay_light,
        {"embedwatch.checks.a": "try:\n    import torch\nexcept ImportError:\n    torch = None"},
    ),
    "faiss in stats": (rules.clients_have_one_place, {"embedwatch.stats.a": "def f():\n    import faiss"}),
    "prometheus in another sink": (rules.clients_have_one_place, {"embedwatch.sinks.a": "import prometheus_client"}),
    "transformers in batch": (rules.clients_have_one_place, {"embedwatch.batch": "from transformers import X"}),
    "pyarrow in cli": (rules.clients_have_one_place, {"embedwatch.cli.a": "import pyarrow.parquet as pq"}),
    "rich in a check": (rules.clients_have_one_place, {"embedwatch.checks.a": "from rich.table import Table"}),
    "fastapi in cli": (rules.clients_have_one_place, {"embedwatch.cli.a": "def f():\n    import fastapi"}),
    "yaml in core": (rules.clients_have_one_place, {"embedwatch.core.a": "import yaml"}),
    "click outside cli": (rules.clients_have_one_place, {"embedwatch.auditing": "import click"}),
    "sklearn at module level": (rules.slow_clients_are_imported_late, {"embedwatch.stats.a": "import sklearn.metrics"}),
    "sklearn in a class body": (
        rules.slow_clients_are_imported_late,
        {"embedwatch.stats.a": "class A:\n    from sklearn import metrics"},
    ),
    "sklearn in a check": (
        rules.slow_clients_are_imported_late,
        {"embedwatch.checks.a": "def f():\n    import sklearn"},
    ),
    "transformers at module level beside its adapter": (
        rules.slow_clients_are_imported_late,
        {"embedwatch.integrations.other": "from transformers import TrainerCallback"},
    ),
    "another slow client in an adapter": (
        rules.slow_clients_are_imported_late,
        {"embedwatch.integrations.transformers": "import sentence_transformers"},
    ),
    "the monitor imports an adapter": (
        rules.nothing_imports_an_adapter,
        {"embedwatch.monitor": "def f():\n    from embedwatch.integrations.transformers import X", **ADAPTER},
    ),
    "its package imports an adapter": (
        rules.nothing_imports_an_adapter,
        {"embedwatch.integrations": "from .transformers import EmbedwatchCallback", **ADAPTER},
    ),
    "an integration imports the model": (
        rules.the_model_stands_alone,
        {"embedwatch.integrations.a": "from embedwatch_model.training import Trainer"},
    ),
    "the model imports embedwatch": (
        rules.the_model_stands_alone,
        {"embedwatch_model.a": "from embedwatch.geometry.norms import row_norms"},
    ),
    "the model imports numpy": (rules.the_model_stands_alone, {"embedwatch_model.a": "import numpy"}),
    "the model names itself": (
        rules.the_model_stands_alone,
        {"embedwatch_model.a": "from embedwatch_model.b import X", "embedwatch_model.b": ""},
    ),
    "a statistic imports the model": (rules.the_model_stands_alone, {"embedwatch.stats.a": "import embedwatch_model"}),
    "two modules import each other": (
        rules.no_circles,
        {"embedwatch.a": "import embedwatch.b", "embedwatch.b": "from embedwatch import a"},
    ),
    "three modules in a ring": (
        rules.no_circles,
        {
            "embedwatch.a": "from .b import x",
            "embedwatch.b": "from .c import x",
            "embedwatch.c": "class A:\n    from .a import x",
        },
    ),
    "two modules, one for types alone": (
        rules.no_circles,
        {
            "embedwatch.a": "def f():\n    from embedwatch.b import X",
            "embedwatch.b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from embedwatch.a import Y",
        },
    ),
    "a module imports a name from its package": (
        rules.no_circles,
        {"embedwatch.p": "from embedwatch.p.a import X", "embedwatch.p.a": "from embedwatch.p import Y"},
    ),
    "pickle": (rules.nothing_unpickles, {"embedwatch.a": "def f():\n    from pickle import loads"}),
    "torch.load": (rules.nothing_unpickles, {"embedwatch.a": "import torch\ntorch.load(p, weights_only=True)"}),
    "torch.load by another name": (rules.nothing_unpickles, {"embedwatch.a": "from torch import load as l\nl(p)"}),
    "np.load": (rules.nothing_unpickles, {"embedwatch.a": "import numpy as np\nnp.load(p, mmap_mode='r')"}),
    "np.load with pickle": (
        rules.nothing_unpickles,
        {"embedwatch.a": "import numpy as np\nnp.load(p, allow_pickle=True)"},
    ),
    "eval": (rules.nothing_unpickles, {"embedwatch.a": "eval(text)"}),
}

CLEAN: dict[str, dict[str, str]] = {
    "core": {"embedwatch.core.a": "import json\nfrom embedwatch.core.b import X", "embedwatch.core.b": "import abc"},
    "layers": {
        "embedwatch.sketches.a": "import torch\nfrom embedwatch.batch import X\nfrom embedwatch import hashing",
        "embedwatch.stats.a": "from embedwatch.ann import search\nfrom embedwatch.core import Metric",
        "embedwatch.batching": "from embedwatch.stats import a",  # a name that only begins like a package of ours
    },
    "helpers of sources and sinks": {
        "embedwatch.sources": "from embedwatch.sources.opening import open_source",
        "embedwatch.sources.a": f"from embedwatch.sources.paths import f\n{PLUGIN}",
        "embedwatch.sources.paths": 'class Double(Source, register=False):\n    name = "x"',
        "embedwatch.sources.opening": "",
    },
    "late and for types": {
        "embedwatch": "if TYPE_CHECKING:\n    import torch\nelse:\n    import json",
        "embedwatch.cli.a": "import click\nfrom rich.console import Console\ndef f():\n    import torch",
        "embedwatch.ann.a": "import faiss, numpy",
        "embedwatch.sinks._encoding": "import prometheus_client",
        "embedwatch.stats.a": "def f():\n    from sklearn.metrics import silhouette_score",
        "embedwatch.loading": "def f():\n    import transformers, embedwatch_model",
    },
    "an adapter": {"embedwatch.integrations": "", "embedwatch.integrations.shared": "import torch", **ADAPTER},
    "the model": {
        "embedwatch_model": "from .a import X",
        "embedwatch_model.a": "import math\nfrom torch import nn\nfrom . import b",
        "embedwatch_model.b": "",
    },
    "no circle": {
        "embedwatch.p": "from embedwatch.p.a import X\nfrom embedwatch.p.b import Y",
        "embedwatch.p.a": "from embedwatch.p import b",
        "embedwatch.p.b": "def f():\n    from embedwatch.q import X",
        "embedwatch.q": "",
    },
    "safe reading": {"embedwatch.a": "import numpy as np\nnp.load(p, mmap_mode='r', allow_pickle=False)\nself.load(p)"},
}


@pytest.fixture(scope="module")
def project() -> Project:
    return rules.read_project(ROOT)


def test_the_project_is_read(project: Project) -> None:
    assert {"embedwatch", "embedwatch.core", "embedwatch.core.registry", "embedwatch_model.embedding"} <= set(project)
    assert project["embedwatch.core"].is_package
    assert len(project) > 30


@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_the_rule_holds(rule: Rule, project: Project) -> None:
    assert rule(project) == []


@pytest.mark.parametrize("case", BREACHES)
def test_the_rule_bites(case: str) -> None:
    rule, sources = BREACHES[case]
    assert rule(project_of(sources)), case


@pytest.mark.parametrize("case", CLEAN)
@pytest.mark.parametrize("rule", rules.RULES, ids=lambda rule: rule.__name__)
def test_the_rule_lets_clean_code_pass(rule: Rule, case: str) -> None:
    assert rule(project_of(CLEAN[case])) == []


def test_every_rule_is_shown_to_bite() -> None:
    assert {rule for rule, _ in BREACHES.values()} == set(rules.RULES)


IMPORT_NAMES = {"faiss-cpu": "faiss", "pyyaml": "yaml", "scikit-learn": "sklearn", "umap-learn": "umap"}
"""Where a distribution is imported by another name than its own."""


def import_names(requirements: list[str]) -> set[str]:
    found = {re.split(r"[<>=!~;\[ ]", line, maxsplit=1)[0].lower() for line in requirements}
    return {IMPORT_NAMES.get(name, name.replace("-", "_")) for name in found}


@pytest.fixture(scope="module")
def declared() -> dict[str, list[str]]:
    """Requirements by extra; those of a plain install under the empty name."""
    data = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    return {"": data["dependencies"], **data["optional-dependencies"]}


def test_everything_imported_is_declared(project: Project, declared: dict[str, list[str]]) -> None:
    known = import_names([line for lines in declared.values() for line in lines])
    assert {name: place for name, place in rules.third_party(project).items() if name not in known} == {}


AHEAD_OF_ITS_CODE: set[str] = set()
"""Declared, so that environments made today stay complete when its code comes; the test fails once it has come."""


def test_every_runtime_dependency_is_imported(project: Project, declared: dict[str, list[str]]) -> None:
    assert import_names(declared[""]) - set(rules.third_party(project)) == AHEAD_OF_ITS_CODE


LOADED_BY_HELP = """
import json, sys
from embedwatch.cli import main
try:
    main(["--help"])
except SystemExit as stop:
    code = stop.code
print(json.dumps({"code": code, "modules": sorted(sys.modules)}))
"""


def test_help_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED_BY_HELP], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    *help_text, last = done.stdout.splitlines()
    answer = json.loads(last)
    assert answer["code"] == 0
    assert help_text[0].startswith("Usage:")
    loaded = {name for name in answer["modules"] if name in rules.HEAVY}
    assert loaded == set()


LOADED_BESIDE_A_MODEL = """
import json, sys
from embedwatch.core import Check, Sink, Statistic
from embedwatch.core.registry import registered
for kind in (Statistic, Check, Sink):
    registered(kind)
print(json.dumps(sorted(sys.modules)))
"""


def test_what_runs_beside_a_model_loads_no_faiss() -> None:
    """It brings pools of threads of its own, for which nobody there has asked."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED_BESIDE_A_MODEL], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    assert {"faiss", "sklearn"}.isdisjoint(json.loads(done.stdout))
