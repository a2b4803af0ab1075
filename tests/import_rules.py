"""The import rules of ARCHITECTURE.md as functions: each takes a project, and returns one line for each breach."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

from tests.import_layers import LAYERS

When = Literal["module", "function", "typing"]
MODEL = "embedwatch_model"


@dataclass(frozen=True)
class Import:
    """One imported name: `from a.b import c` has the target `a.b.c`."""

    target: str
    line: int
    when: When


class Module:
    """A module's text and what it imports."""

    def __init__(self, name: str, source: str, *, is_package: bool = False) -> None:
        self.name = name
        self.is_package = is_package
        self.tree = ast.parse(source, filename=name)

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports(self.tree.body, "module"))

    def at_start(self) -> list[Import]:
        """What is imported when this module is imported."""
        return [each for each in self.imports if each.when == "module"]

    def _imports(self, nodes: Iterable[ast.AST], when: When) -> Iterator[Import]:
        for node in nodes:
            if isinstance(node, ast.Import):
                yield from (Import(alias.name, node.lineno, when) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = self._base(node)
                yield from (Import(f"{base}.{alias.name}", node.lineno, when) for alias in node.names)
            elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
                yield from self._imports(node.body, "typing")
                yield from self._imports(node.orelse, when)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                yield from self._imports(ast.iter_child_nodes(node), "function")
            else:
                if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in (
                    "import_module",
                    "__import__",
                ):
                    named = node.args[0] if node.args else None
                    if isinstance(named, ast.Constant) and isinstance(named.value, str):
                        yield Import(named.value, node.lineno, when)
                yield from self._imports(ast.iter_child_nodes(node), when)

    def _base(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of what a `from` import draws from."""
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        keep = len(parts) - node.level + (1 if self.is_package else 0)
        return ".".join([*parts[:keep], *([node.module] if node.module else [])])

    def defines_plugin(self) -> bool:
        """Whether a class here sets `name`, and so registers itself."""
        return any(
            isinstance(node, ast.ClassDef)
            and not any(keyword.arg == "register" for keyword in node.keywords)
            and any(target == "name" for statement in node.body for target in _assigned(statement))
            for node in self.tree.body
        )

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Yield each call with its dotted name, `import numpy as np` undone."""
        names = {}
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                names.update({alias.asname: alias.name for alias in node.names if alias.asname})
            elif isinstance(node, ast.ImportFrom):
                names.update({alias.asname or alias.name: f"{self._base(node)}.{alias.name}" for alias in node.names})
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                first, _, rest = ast.unparse(node.func).partition(".")
                yield ".".join(filter(None, (names.get(first, first), rest))), node


def _assigned(statement: ast.stmt) -> list[str]:
    if isinstance(statement, ast.Assign):
        return [target.id for target in statement.targets if isinstance(target, ast.Name)]
    if isinstance(statement, ast.AnnAssign) and statement.value is not None and isinstance(statement.target, ast.Name):
        return [statement.target.id]
    return []


Project = Mapping[str, Module]


def project_of(sources: Mapping[str, str]) -> Project:
    """Make a project from module names and texts; a module with children is a package."""
    return {
        name: Module(name, text, is_package=any(other.startswith(f"{name}.") for other in sources))
        for name, text in sources.items()
    }


def read_project(root: Path) -> Project:
    """Read `embedwatch/` and `model/` of a checkout."""
    project = {}
    for folder, package in ((root / "embedwatch", "embedwatch"), (root / "model", MODEL)):
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join([package, *(parts[:-1] if is_package else parts)])
            project[name] = Module(name, path.read_text(encoding="utf-8"), is_package=is_package)
    return project


def within(name: str, *prefixes: str) -> bool:
    """Whether a dotted name is one of these or lies below one."""
    return any(name == prefix or name.startswith(f"{prefix}.") for prefix in prefixes)


def home(target: str, project: Project) -> str | None:
    """Return the module that an import of this target loads, or `None` where it is not ours."""
    while target:
        if target in project:
            return target
        target = target.rpartition(".")[0]
    return None


def _ours(target: str) -> bool:
    return within(target, "embedwatch", MODEL)


def _top(target: str) -> str:
    return target.partition(".")[0]


# --- Rules 1 and 2: which package of ours may import which -----------------------------------------------------------

PLUGIN_FOLDERS = tuple(
    f"embedwatch.{kind}" for kind in ("stats", "diagnostics", "checks", "sinks", "sources", "faults")
)
WITH_HELPERS = ("embedwatch.sinks", "embedwatch.sources")
"""Folders in which modules that define no plug-in may be shared."""


def core_is_standard_library(project: Project) -> list[str]:
    """`core` imports the standard library and itself."""
    return [
        f"{name}:{each.line} imports {each.target}; core takes the standard library only"
        for name, module in project.items()
        if within(name, "embedwatch.core")
        for each in module.imports
        if not within(each.target, "embedwatch.core") and _top(each.target) not in sys.stdlib_module_names
    ]


def layers(project: Project) -> list[str]:
    """Each package imports of ours only what lies below it."""
    found = []
    for name, module in project.items():
        for package, allowed in LAYERS.items():
            if within(name, package):
                found += [
                    f"{name}:{each.line} imports {each.target}; of ours {package} may import {', '.join(allowed)}"
                    for each in module.imports
                    if _ours(each.target) and not within(each.target, *allowed)
                ]
    return found


def plugins_stand_alone(project: Project) -> list[str]:
    """No module of a plug-in folder imports a plug-in; shared helpers exist in some folders only."""
    found = []
    for name, module in project.items():
        folder = next((folder for folder in PLUGIN_FOLDERS if within(name, folder)), None)
        for each in module.imports if folder else ():
            target = home(each.target, project)
            if target is None or target == folder or not within(target, *PLUGIN_FOLDERS):
                continue
            if not within(target, str(folder)) or folder not in WITH_HELPERS or project[target].defines_plugin():
                found.append(f"{name}:{each.line} imports {target}; plug-ins stand alone")
    return found


# --- Rule 3: no torch from the Snapshot on ---------------------------------------------------------------------------

LIGHT = tuple(
    f"embedwatch.{name}"
    for name in (
        "calibration",
        "core",
        "checks",
        "explaining",
        "exposition",
        "judging",
        "operations",
        "recording",
        "sinks",
        "report",
        "cli",
    )
)
HEAVY = (
    "torch",
    "faiss",
    "transformers",
    "sentence_transformers",
    "tokenizers",
    "pyarrow",
    "sklearn",
    "scipy",
    "numpy",
    "pandas",
    MODEL,
)


def _loaded_by(name: str, project: Project) -> dict[str, tuple[str, ...]]:
    """Return each module, ours or not, that importing `name` loads, with the way to it."""
    ways: dict[str, tuple[str, ...]] = {}
    waiting = [(name, (name,))]
    while waiting:
        current, way = waiting.pop(0)
        if current in ways:
            continue
        ways[current] = way
        parent = current.rpartition(".")[0]
        if parent in project:
            waiting.append((parent, (*way, parent)))
        if current in project:
            for each in project[current].at_start():
                target = home(each.target, project) or _top(each.target)
                waiting.append((target, (*way, target)))
    return ways


def light_modules_stay_light(project: Project) -> list[str]:
    """Importing a module from the Snapshot on loads no torch and nothing of its size, not even through others."""
    return [
        f"{name} loads {heavy} at import: {' -> '.join(way)}"
        for name in project
        if name == "embedwatch" or within(name, *LIGHT)
        for heavy, way in _loaded_by(name, project).items()
        if heavy in HEAVY
    ]


# --- Rule 4: each third-party client in one place --------------------------------------------------------------------

PLACES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("anyio", "bcrypt", "fastapi", "h11", "pydantic", "starlette", "uvicorn"), ("embedwatch.daemon",)),
    "click": ("embedwatch.cli",),
    "faiss": ("embedwatch.ann",),
    "huggingface_hub": ("embedwatch.loading", "embedwatch.integrations"),
    **dict.fromkeys(("lightning", "pytorch_lightning"), ("embedwatch.integrations.lightning",)),
    "prometheus_client": ("embedwatch.sinks._encoding", "embedwatch.daemon"),
    "pyarrow": ("embedwatch.sources",),
    "rich": ("embedwatch.cli", "embedwatch.sinks.console"),
    "sentence_transformers": ("embedwatch.loading", "embedwatch.integrations"),
    "tokenizers": ("embedwatch.loading", "embedwatch.integrations", "embedwatch_model"),
    "transformers": ("embedwatch.loading", "embedwatch.integrations", "embedwatch.observe"),
    "yaml": ("embedwatch.daemon", "embedwatch.lexicons", "embedwatch.operations"),
}
NEVER_AT_START = ("sklearn", "scipy", "transformers", "sentence_transformers")
"""Seconds of import time that only those pay who use them."""


ADAPTERS = {
    "embedwatch.integrations.lightning": "lightning",
    "embedwatch.integrations.transformers": "transformers",
}
"""Modules that exist for one slow client, whose classes they derive from: people import them, nothing of ours does."""


def clients_have_one_place(project: Project) -> list[str]:
    """A third-party client is imported where it belongs and nowhere else."""
    return [
        f"{name}:{each.line} imports {each.target}; it belongs in {', '.join(PLACES[_top(each.target)])}"
        for name, module in project.items()
        for each in module.imports
        if _top(each.target) in PLACES and not within(name, *PLACES[_top(each.target)])
    ]


def slow_clients_are_imported_late(project: Project) -> list[str]:
    """What takes long to import is imported inside the function that needs it, and only below the Snapshot."""
    return [
        f"{name}:{each.line} imports {each.target}; import it inside the function that needs it, below the Snapshot"
        for name, module in project.items()
        for each in module.imports
        if _top(each.target) in NEVER_AT_START
        and ADAPTERS.get(name) != _top(each.target)
        and (each.when == "module" or (each.when == "function" and within(name, *LIGHT)))
    ]


def nothing_imports_an_adapter(project: Project) -> list[str]:
    """What derives from classes of a slow client is imported by people only: `import embedwatch` must not load it."""
    return [
        f"{name}:{each.line} imports {target}; only people import it"
        for name, module in project.items()
        for each in module.imports
        if (target := home(each.target, project)) in ADAPTERS
    ]


def third_party(project: Project) -> dict[str, str]:
    """Return each third-party top-level name that the project imports, with one place."""
    return {
        _top(each.target): f"{name}:{each.line}"
        for name, module in project.items()
        for each in module.imports
        if not _ours(each.target) and _top(each.target) not in sys.stdlib_module_names
    }


# --- Rule 5: the model stands alone ----------------------------------------------------------------------------------


MODEL_NEEDS = ("torch", "safetensors", "tokenizers")
"""What `model/` may import beside itself and the standard library."""


def the_model_stands_alone(project: Project) -> list[str]:
    """`model/` imports itself (relatively), torch, its file formats and the standard library; few import it."""
    found = []
    for name, module in project.items():
        for each in module.imports:
            if within(name, MODEL):
                if within(each.target, "embedwatch"):
                    found.append(f"{name}:{each.line} imports {each.target}; the model knows nothing of embedwatch")
                elif not _ours(each.target) and _top(each.target) not in (*sys.stdlib_module_names, *MODEL_NEEDS):
                    found.append(f"{name}:{each.line} imports {each.target}; the model needs {', '.join(MODEL_NEEDS)}")
            elif within(each.target, MODEL) and not within(name, "embedwatch.cli", "embedwatch.loading"):
                found.append(f"{name}:{each.line} imports {each.target}; only cli and loading may")
        if within(name, MODEL):
            found += [
                f"{name}:{node.lineno} names itself absolutely; import relatively"
                for node in ast.walk(module.tree)
                if (isinstance(node, ast.ImportFrom) and not node.level and within(node.module or "", MODEL))
                or (isinstance(node, ast.Import) and any(within(alias.name, MODEL) for alias in node.names))
            ]
    return found


# --- No circles, nothing unsafe --------------------------------------------------------------------------------------


def no_circles(project: Project) -> list[str]:
    """No module imports itself, not even through others, at whatever time."""
    edges = {
        name: sorted({target for each in module.imports if (target := home(each.target, project)) and target != name})
        for name, module in project.items()
    }
    found: list[str] = []
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        if name in way:
            found.append("circle: " + " -> ".join([*way[way.index(name) :], name]))
        elif name not in done:
            for target in edges[name]:
                visit(target, (*way, name))
            done.add(name)

    for name in edges:
        visit(name, ())
    return found


UNSAFE_MODULES = ("pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal")
UNSAFE_CALLS = ("torch.load", "eval", "exec", "yaml.load", "pandas.read_pickle", "os.system")
NEEDS_ALLOW_PICKLE = (
    "numpy.load",
    "numpy.lib.format.read_array",
    "numpy.lib.format.write_array",
    "numpy.lib.npyio.NpzFile",
)


def nothing_unpickles(project: Project) -> list[str]:
    """Nothing that is read can run code: no pickle under any of its names."""
    found = []
    for name, module in project.items():
        found += [
            f"{name}:{each.line} imports {each.target}; reading it can run code"
            for each in module.imports
            if _top(each.target) in UNSAFE_MODULES
        ]
        for called, node in module.calls():
            if called in UNSAFE_CALLS:
                found.append(f"{name}:{node.lineno} calls {called}; it can run code from its input")
            refused = any(
                keyword.arg == "allow_pickle" and ast.unparse(keyword.value) == "False" for keyword in node.keywords
            )
            if called in NEEDS_ALLOW_PICKLE and not refused:
                found.append(f"{name}:{node.lineno} calls {called} without allow_pickle=False")
    return found


RULES = (
    core_is_standard_library,
    layers,
    plugins_stand_alone,
    light_modules_stay_light,
    clients_have_one_place,
    slow_clients_are_imported_late,
    nothing_imports_an_adapter,
    the_model_stands_alone,
    no_circles,
    nothing_unpickles,
)
