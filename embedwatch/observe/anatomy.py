"""What a model is made of: its stacks of layers, its tables of tokens, and what adds positions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from torch import nn

__all__ = [
    "TABLES_AT_MOST",
    "Modules",
    "adds_positions",
    "find_stacks",
    "is_computed",
    "lies_in_parts",
    "parent_of",
    "token_embeddings",
    "token_groups",
    "weight_of",
]

BULK = 0.05
"""A list of modules alike is a stack of layers if it holds at least this share of the parameters outside embeddings."""
MOST = 0.5
"""A list of modules of several classes is one if it holds at least this share of them."""
VOCABULARY_AT_LEAST = 3
"""A table of fewer rows tells segments apart, not tokens."""
TABLES_AT_MOST = 8
"""So many tables are followed, the most prominent ones."""
LISTS = (nn.ModuleList, nn.Sequential)
SILENT_LISTS = (nn.ModuleList, nn.ModuleDict)
"""Modules that are never called, so that no hook on them fires."""
HEADS = re.compile(r"head|stem|classifier", re.IGNORECASE)
"""Lists by such names stand before or after the layers, however large they are."""
POSITIONS = re.compile(r"position|^wpe\b", re.IGNORECASE)
SHORT_POSITIONS = re.compile(r"(?:^|_)(?:w?pe|posn?|pos_?(?:emb|enc)\w*)(?:_(?!tag)|\d|$)", re.IGNORECASE)
"""Names of tables of positions. Other modules may be called so too, as `pos_drop`, and add none."""
SEGMENTS = re.compile(r"^(?:token_?)?type|segment|(?:^|_)seg(?:_|$)", re.IGNORECASE)
BIASES = re.compile(r"bias|relative|(?:^|_)rel(?:_|$)", re.IGNORECASE)
TOKENS = re.compile(r"(?:^|_)(?:tok(?:en)?s?|words?|wte|vocab\w*)(?:_|$)", re.IGNORECASE)

Modules = Mapping[str, nn.Module]


def token_embeddings(model: nn.Module) -> dict[str, nn.Embedding]:
    """Return the embeddings of the model's input, by name: all that share its table. They are the first group."""
    return next(iter(token_groups(model)), {})


def token_groups(model: nn.Module) -> list[dict[str, nn.Embedding]]:
    """Return the tables of tokens, each as the embeddings that share it, by name; that of the model's input first.

    A model, or a part of one, with `get_input_embeddings` names its table itself. Its other embeddings are positions
    and the like, apart from those of further towers: named after tokens, in another module. In all other models each
    embedding outside the layers is a table of tokens, as users and items are, unless its name speaks of positions,
    segments or biases. One that an output shares comes first, then one that is named after tokens, then the tallest.
    There are `TABLES_AT_MOST` at most.

    Example:
        >>> towers = nn.ModuleDict({"user": nn.Embedding(500, 8), "item": nn.Embedding(300, 8)})
        >>> [list(group) for group in token_groups(towers)]
        [['user'], ['item']]
    """
    every = _embeddings(dict(model.named_modules()))
    groups: list[dict[str, nn.Embedding]] = []
    for source in _sources(model):
        if not any(source in group.values() for group in groups):
            groups.append({name: module for name, module in every.items() if _shares(module, source)})
    return [group for group in groups if group][:TABLES_AT_MOST]


def _sources(model: nn.Module) -> list[nn.Embedding]:
    """Return embeddings of tokens, the most prominent first, those that share a table each for itself."""
    modules = dict(model.named_modules())
    given = _given(model)
    if given is not None:
        return _named_by(given, modules)
    owners = _owners(modules)
    apart = tuple(f"{name}." for name in owners)
    free = {name: module for name, module in _tables(modules).items() if not name.startswith(apart)}
    layers = tuple(f"{name}." for name in find_stacks(modules))
    outside = {name: module for name, module in free.items() if not name.startswith(layers)}
    inner = [source for owner in owners.values() for source in _sources(owner)]
    named = {id(module) for name, module in _embeddings(modules).items() if TOKENS.search(_own(name))}
    outputs = _outputs(modules)

    def prominence(module: nn.Embedding) -> tuple[bool, bool, int]:
        return id(weight_of(module)) in outputs, id(module) in named, module.num_embeddings

    chosen = [*inner, *(outside or ({} if inner else free)).values()]
    return sorted(chosen, key=prominence, reverse=True)


def _named_by(given: nn.Module, modules: Modules) -> list[nn.Embedding]:
    """Return what `get_input_embeddings` names, where that is a table, and the tables of further towers."""
    every = _embeddings(modules)
    first = [given] if isinstance(given, nn.Embedding) else []
    homes = {parent_of(name) for name, module in every.items() for source in first if _shares(module, source)}
    further = (
        module
        for name, module in _tables(modules).items()
        if TOKENS.search(_own(name)) and parent_of(name) not in homes
    )
    return [*first, *further]


def _given(model: nn.Module) -> nn.Module | None:
    """Return what a model says its input embedding is; `None` where it says nothing."""
    getter = getattr(model, "get_input_embeddings", None)
    if not callable(getter):
        return None
    try:
        given = getter()
    except Exception:  # noqa: BLE001 - a model without tokens raises what it likes
        return None
    return given if isinstance(given, nn.Module) else None


def _owners(modules: Modules) -> dict[str, nn.Module]:
    """Return the outermost parts of a model that name their input embedding."""
    found: dict[str, nn.Module] = {}
    for name, module in modules.items():
        if name and not name.startswith(tuple(f"{owner}." for owner in found)) and _given(module) is not None:
            found[name] = module
    return found


def _embeddings(modules: Modules) -> dict[str, nn.Embedding]:
    return {name: module for name, module in modules.items() if isinstance(module, nn.Embedding)}


def _shares(module: nn.Embedding, other: nn.Embedding) -> bool:
    return module is other or weight_of(module) is weight_of(other)


def _tables(modules: Modules) -> dict[str, nn.Embedding]:
    """Return the embeddings that may be tables of tokens, by what they are called or what shares them."""
    outputs = _outputs(modules)
    return {
        name: module
        for name, module in _embeddings(modules).items()
        if module.num_embeddings >= VOCABULARY_AT_LEAST
        and (id(weight_of(module)) in outputs or not _is_other(name, module, modules))
    }


def _is_other(name: str, module: nn.Embedding, modules: Modules) -> bool:
    """Return whether a table is one of positions, segments or biases."""
    own = _own(name)
    if SEGMENTS.search(own) or BIASES.search(own) or adds_positions(name, module):
        return True
    parent = modules.get(parent_of(name))
    alone = parent is not None and parent is not module and len(_embeddings(dict(parent.named_modules()))) == 1
    return alone and not TOKENS.search(own) and parent is not modules[""] and _speaks_of_positions(name, parent)


def _speaks_of_positions(name: str, parent: nn.Module | None) -> bool:
    words = f"{_own(parent_of(name))} {type(parent).__name__}"
    return POSITIONS.search(words) is not None and not re.search(r"token|word", words, re.IGNORECASE)


def _outputs(modules: Modules) -> set[int]:
    """Return the weights of linear maps: a table that one of them shares holds what the model puts out, tokens."""
    return {id(weight_of(module)) for module in modules.values() if isinstance(module, nn.Linear)}


def is_computed(module: nn.Module) -> bool:
    """Return whether a module's weight is computed anew each time that it is read, as `parametrize` has it.

    Then reading is not for us: a spectral norm takes a step of its iteration at each reading in training.

    Example:
        >>> from torch.nn.utils.parametrizations import spectral_norm
        >>> is_computed(nn.Linear(2, 2)), is_computed(spectral_norm(nn.Linear(2, 2)))
        (False, True)
    """
    return "weight" not in module._parameters and "parametrizations" in module._modules


def weight_of(module: nn.Module) -> object:
    """Return what a module's weight is known by: two that share it have the same. A computed one is not read."""
    return module if is_computed(module) else getattr(module, "weight", module)


def adds_positions(name: str, module: nn.Module) -> bool:
    """Return whether a module adds positions or looks them up, by its name and its class.

    Example:
        >>> adds_positions("decoder.pos_emb", nn.Embedding(512, 8)), adds_positions("pos_drop", nn.Dropout())
        (True, False)
    """
    own = _own(name)
    if POSITIONS.search(f"{own} {type(module).__name__}"):
        return True
    return isinstance(module, nn.Embedding) and SHORT_POSITIONS.search(own) is not None


def lies_in_parts(model: nn.Module) -> bool:
    """Return whether weights lie in parts on several ranks, so that one rank alone can neither read nor run the model.

    Known are DTensors (`fully_shard`, tensor parallelism), FullyShardedDataParallel, and DeepSpeed's ZeRO-3.
    """
    marked = any(getattr(module, "_is_fsdp_managed_module", False) for module in model.modules())
    return marked or any(hasattr(weight, "to_local") or hasattr(weight, "ds_id") for weight in model.parameters())


def parent_of(name: str) -> str:
    """Return the dotted path of what holds a module."""
    return name.rpartition(".")[0]


def _own(name: str) -> str:
    return name.rpartition(".")[2]


def find_stacks(modules: Modules) -> dict[str, nn.Module]:
    """Return the lists of layers by name, none within another.

    Layers are modules in a list, each made of others and called. Those of one class need a fair share of the
    parameters. Where some differ, as where every second layer is a mixture of experts, the list needs most of them, and
    a sign that its members take turns: a class that comes twice, or one they all derive from, or no layers within.
    Heads and stems by name are left out, and so are towers, which have tables of tokens of their own.
    """
    outside = _outside(modules)
    found: dict[str, nn.Module] = {}
    for name, module in modules.items():
        within = name.startswith(tuple(f"{stack}." for stack in found))
        if name and not within and isinstance(module, LISTS) and _is_stack(name, module, outside):
            found[name] = module
    return found


def _outside(modules: Modules) -> int:
    """Return the number of parameters outside embeddings, and outside outputs of the same shape as the tallest."""
    tallest = max(_embeddings(modules).values(), key=lambda module: module.num_embeddings, default=None)
    shape = None if tallest is None else (tallest.num_embeddings, tallest.embedding_dim)
    others = (
        module
        for module in modules.values()
        if not isinstance(module, nn.Embedding)
        and not (isinstance(module, nn.Linear) and (module.out_features, module.in_features) == shape)
    )
    return sum(parameter.numel() for module in others for parameter in module.parameters(recurse=False))


def _is_stack(name: str, module: nn.Module, outside: int) -> bool:
    children = list(module.children())
    called = bool(children) and not any(isinstance(child, SILENT_LISTS) for child in children)
    composite = called and all(any(True for _ in child.children()) for child in children)
    if not composite or HEADS.search(_own(name)) or all(_is_tower(child) for child in children):
        return False
    size = sum(parameter.numel() for parameter in module.parameters())
    if len({type(child) for child in children}) == 1:
        return size >= BULK * outside
    return size >= MOST * outside and _take_turns(children)


def _is_tower(module: nn.Module) -> bool:
    return bool(_tables(dict(module.named_modules())))


def _take_turns(children: list[nn.Module]) -> bool:
    """Return whether modules of several classes are layers of one stack."""
    classes = [type(child) for child in children]
    if len(set(classes)) < len(classes) or _relatives(classes):
        return True
    return not any(_has_list(child) or _is_tower(child) for child in children)


def _relatives(classes: list[type[nn.Module]]) -> bool:
    """Return whether classes derive from one that is not torch's own."""
    common = set(classes[0].__mro__).intersection(*(each.__mro__ for each in classes[1:]))
    return any(not each.__module__.startswith(("torch.", "builtins")) for each in common)


def _has_list(module: nn.Module) -> bool:
    return any(_has_layers(part) for part in module.modules())


def _has_layers(module: nn.Module) -> bool:
    composite: Iterator[bool] = (any(True for _ in child.children()) for child in module.children())
    return isinstance(module, LISTS) and sum(composite) > 1
