"""The layers of an index: what wraps what, whether they fit together, what each of them loses."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from embedwatch.ann._faiss import faiss
from embedwatch.ann.facts import IndexRefusedError

__all__ = ["Layers", "check_flat_codes", "metric_sign", "peel", "turns"]

METRICS = {faiss.METRIC_INNER_PRODUCT: "inner product", faiss.METRIC_L2: "euclidean"}
_QT = faiss.ScalarQuantizer
SCALARS = {
    _QT.QT_8bit: ("SQ8", "8 bits a value (near 0.8 % of the length)", False),
    _QT.QT_fp16: ("SQfp16", "16-bit floats (near 0.02 % of the length)", False),
    _QT.QT_bf16: ("SQbf16", "bfloat16 (near 0.2 % of the length)", False),
    _QT.QT_4bit: ("SQ4", "4 bits a value", True),
    _QT.QT_6bit: ("SQ6", "6 bits a value", True),
}
"""Type of a scalar quantiser to its name in the factory, what it keeps, and whether it loses above one percent."""
DAMAGED = "it is damaged, write it again with faiss.write_index"
TURNS = 1e-3
"""How far the product of a rotation with its transpose may be from the identity."""
SIGNS = "keeps hashes of signs, from which no vectors come back; give the vectors that it was built from"


@dataclass
class Layers:
    """An index taken apart, outermost layer first.

    Args:
        index: all of it.
        names: of the layers as the factory knows them; `?` before those that it does not know.
        maps: the id maps on the way.
        chains: the layers that transform vectors before they are stored where they can be had.
        refine: the layer that keeps a better copy of the vectors.
        core: the innermost layer, that holds the vectors.
        unreadable: why no vectors can be had from it; empty where they can.
        settings: how hard it searches: `nprobe`, `efSearch`, `k_factor`, where it has them.
        lossy, rounded: what cannot be had back, one phrase a layer.
    """

    index: Any
    names: list[str] = field(default_factory=list)
    maps: list[Any] = field(default_factory=list)
    chains: list[Any] = field(default_factory=list)
    refine: Any = None
    core: Any = None
    unreadable: str = ""
    settings: dict[str, float] = field(default_factory=dict)
    lossy: list[str] = field(default_factory=list)
    rounded: list[str] = field(default_factory=list)

    @property
    def kind(self) -> str:
        """The layers in one text."""
        return ",".join(name.removeprefix("?") for name in self.names)

    @property
    def recipe(self) -> str:
        """What the factory needs; empty where it knows not all layers."""
        return "" if any(name.startswith("?") for name in self.names) else self.kind

    @property
    def metric(self) -> str:
        """How vectors are compared."""
        return METRICS.get(self.index.metric_type, f"metric {self.index.metric_type}")


def peel(index: Any) -> Layers:
    """Take an index apart, and refuse one whose layers do not fit together.

    Raises:
        IndexRefusedError: saying what is wrong.
    """
    index = faiss.downcast_index(index)
    found = Layers(index)
    losses: tuple[list[str], list[str]] = [], []
    current, tail = index, []
    while True:
        if isinstance(current, faiss.IndexIDMap):
            found.names.append("IDMap2" if isinstance(current, faiss.IndexIDMap2) else "IDMap")
            found.maps.append(current)
            _require(current.id_map.size() == current.index.ntotal, "holds another number of ids than of vectors")
            inner = current.index
        elif isinstance(current, faiss.IndexPreTransform):
            if found.refine is None:  # behind it lie the vectors that can be had
                found.chains.append(current)
            found.names.append(_chain_name(current, found))
            inner = current.index
        elif isinstance(current, faiss.IndexRefine):
            found.refine = faiss.downcast_index(current.refine_index)
            losses = list(found.lossy), list(found.rounded)
            found.settings["k_factor"] = current.k_factor
            tail = [_refine_name(found)]
            inner = current.base_index
            _require(found.refine.ntotal == current.ntotal, "refines another number of vectors than it holds")
        else:
            break
        _require(inner is not None, "holds no index inside")
        inner = faiss.downcast_index(inner)
        _require(inner.ntotal == current.ntotal, "says another number of vectors outside than inside")
        current = inner
    found.core = current
    found.names += [*_core_names(current, found), *tail]
    if found.refine is not None:  # what the core loses, the refined copy has
        found.lossy, found.rounded = losses
        _flat_loss(found.refine, found)
    return found


def check_flat_codes(index: Any) -> None:
    """Refuse codes of another size than the number of vectors takes: reading them would read what lies behind."""
    if isinstance(index, faiss.IndexFlatCodes) and index.codes.size() != index.ntotal * index.code_size:
        raise IndexRefusedError(f"holds another number of bytes than its vectors take; {DAMAGED}")


def _require(holds: bool, what: str, fix: str = DAMAGED) -> None:  # noqa: FBT001
    if not holds:
        raise IndexRefusedError(f"{what}; {fix}")


def _chain_name(layer: Any, found: Layers) -> str:
    """Return the names of the transforms, and check that each takes what the one before gives."""
    names, width = [], layer.d
    for place in range(layer.chain.size()):
        step = faiss.downcast_VectorTransform(layer.chain.at(place))
        _require(step.d_in == width, "transforms vectors of another dimension than it takes")
        if isinstance(step, faiss.LinearTransform):
            _require(step.A.size() == step.d_in * step.d_out, "holds a map of another size than its dimensions say")
            _require(not step.have_bias or step.b.size() == step.d_out, "holds a map whose offset has another size")
        _require(step.is_trained, "holds a transform that was not trained", "train it before it is written")
        width = step.d_out
        names.append(_transform_name(step, faiss.downcast_index(layer.index), found))
        if step.d_out < step.d_in:
            found.lossy.append(f"keeps {step.d_out} of {step.d_in} dimensions")
        if isinstance(step, faiss.NormalizationTransform):
            found.rounded.append("keeps directions, not lengths")
    _require(width == layer.index.d, "transforms vectors into another dimension than it stores")
    return (
        ",".join(names)
        if all(not name.startswith("?") for name in names)
        else "?" + ",".join(name.removeprefix("?") for name in names)
    )


def _transform_name(step: Any, inner: Any, found: Layers) -> str:
    pq = getattr(inner, "pq", None)
    if isinstance(step, faiss.LinearTransform) and turns(step) and not step.have_bias and pq is not None:
        return f"OPQ{pq.M}" + (f"_{step.d_out}" if step.d_out != step.d_in else "")  # read from a file it is any map
    if isinstance(step, faiss.PCAMatrix):
        return f"PCA{step.d_out}" if step.eigen_power == 0 and not step.random_rotation else f"?PCA{step.d_out}"
    if isinstance(step, faiss.NormalizationTransform):
        return "L2norm"
    if isinstance(step, faiss.ITQTransform):
        found.unreadable = SIGNS
        return f"?ITQ{step.d_out}"
    if isinstance(step, faiss.RandomRotationMatrix):
        return f"?RR{step.d_out}"
    return "?Linear" if isinstance(step, faiss.LinearTransform) else f"?{type(step).__name__}"


def turns(step: Any) -> bool:
    """Return whether the transpose undoes a linear map; one that was read from a file always says so (FAISS 1.15.1)."""
    matrix = faiss.vector_to_array(step.A).reshape(step.d_out, step.d_in).astype(np.float64)
    small = matrix @ matrix.T if step.d_out <= step.d_in else matrix.T @ matrix
    return bool(np.abs(small - np.eye(len(small))).max() < TURNS)


def _refine_name(found: Layers) -> str:
    refine = found.refine
    if isinstance(refine, faiss.IndexFlat):
        return "RFlat"
    if isinstance(refine, faiss.IndexScalarQuantizer) and refine.sq.qtype in SCALARS:
        return f"Refine({SCALARS[refine.sq.qtype][0]})"
    return f"?Refine({type(refine).__name__})"


def _core_names(core: Any, found: Layers) -> list[str]:
    if isinstance(core, faiss.IndexIVF):
        found.settings["nprobe"] = core.nprobe
        return [_list_name(core), _flat_name(core, found)]
    if isinstance(core, faiss.IndexHNSW):
        found.settings["efSearch"] = core.hnsw.efSearch
        storage = _storage(core)
        inner = _flat_name(storage, found)
        name = f"HNSW{core.hnsw.nb_neighbors(1)}"
        known = inner in ("Flat", "SQ8")
        return [name, inner] if known else [f"?{name}", inner]
    if isinstance(core, faiss.IndexNSG):
        return ["?NSG", _flat_name(_storage(core), found)]
    return [_flat_name(core, found)]


def _storage(graph: Any) -> Any:
    storage = graph.storage
    _require(storage is not None, "holds a graph without vectors", "write it with its storage")
    storage = faiss.downcast_index(storage)
    _require(
        storage.ntotal == graph.ntotal and storage.d == graph.d, "holds a graph of other vectors than are stored in it"
    )
    return storage


def _list_name(core: Any) -> str:
    _require(core.quantizer is not None, "holds lists without centroids")
    quantizer = faiss.downcast_index(core.quantizer)
    _require(core.invlists is not None and core.invlists.nlist == core.nlist, "holds another number of lists than says")
    fits = quantizer.d == core.d and quantizer.ntotal == core.nlist
    _require(fits or not core.is_trained, "holds centroids of another number or dimension than its lists")
    if isinstance(quantizer, faiss.IndexFlat):
        return f"IVF{core.nlist}"
    if isinstance(quantizer, faiss.IndexHNSWFlat):
        return f"IVF{core.nlist}_HNSW{quantizer.hnsw.nb_neighbors(1)}"
    return f"?IVF{core.nlist}"


def _flat_name(core: Any, found: Layers) -> str:
    check_flat_codes(core)
    _flat_loss(core, found)
    if isinstance(core, faiss.IndexFlat | faiss.IndexIVFFlat):
        plain = type(core).__name__ in ("IndexFlat", "IndexFlatL2", "IndexFlatIP", "IndexIVFFlat")
        return "Flat" if plain else f"?{type(core).__name__}"
    if isinstance(core, faiss.IndexPQ | faiss.IndexIVFPQ):
        return f"PQ{core.pq.M}x{core.pq.nbits}np"  # without `np`, polysemous training takes a hundred times as long
    if isinstance(core, faiss.IndexScalarQuantizer | faiss.IndexIVFScalarQuantizer) and core.sq.qtype in SCALARS:
        return SCALARS[core.sq.qtype][0]
    return f"?{type(core).__name__.removeprefix('Index').removeprefix('IVF')}"


def _flat_loss(core: Any, found: Layers) -> None:
    """Note what a layer that holds vectors loses."""
    if isinstance(core, faiss.IndexLSH):
        found.unreadable = SIGNS
        return
    if isinstance(core, faiss.IndexFlat | faiss.IndexIVFFlat):
        return
    if isinstance(core, faiss.IndexScalarQuantizer | faiss.IndexIVFScalarQuantizer | faiss.IndexHNSWSQ):
        known = SCALARS.get(core.sq.qtype) if hasattr(core, "sq") else None
        name, what, lossy = known or ("SQ", "few bits a value", True)
        (found.lossy if lossy else found.rounded).append(f"keeps {what} ({name})")
        return
    pq = getattr(core, "pq", None)
    if pq is not None:
        bits = pq.M * pq.nbits
        found.lossy.append(f"keeps {bits} of {core.d * 32:,} bits a vector (product quantiser {pq.M}x{pq.nbits})")
        return
    found.lossy.append(f"keeps codes, not vectors ({type(core).__name__})")


def metric_sign(index: Any) -> float:
    """Return 1 where larger is nearer, -1 where smaller is."""
    return 1.0 if faiss.is_similarity_metric(index.metric_type) else -1.0
