"""The contract of sources: what each must give of a good file, and how it must refuse a damaged one.

Every Source is run through it; a package that ships its own does the same, with files of its own making:

    ```
    @pytest.mark.parametrize("clause", SOURCE_CONTRACT)
    def test_my_source(clause, tmp_path):
        SOURCE_CONTRACT[clause](MySource, make_a_file(tmp_path))

    def test_my_source_refuses_damage(tmp_path):
        refuses_damage(MySource, make_a_file(tmp_path), tmp_path)
    ```
"""

from __future__ import annotations

import gc
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.errors import EmbedwatchError, InputError, UsageError
from embedwatch.core.source import Source
from embedwatch.testing.contracts import ContractViolation

__all__ = ["MEMORY_LIMIT", "SOURCE_CONTRACT", "hostile_variants", "refuses_damage", "source_contract"]

SIZES = (1, 3, 7, 1000)
"""Batch sizes that must give the same rows."""
MEMORY_LIMIT = 512 << 20
"""Reading one damaged copy of a small file may raise the peak of the process by so much."""
FLIPS = 24
SEED = 7
_HUGE = ((b"\xff" * 8, "ones"), (b"\0" * 8, "zeros"), (b"\xff\xff\xff\x7f" * 2, "large"), (b"99999999", "nines"))

Options = dict[str, Any]
Clause = Callable[..., None]


def _require(held: object, what: str) -> None:
    if not held:
        raise ContractViolation(what)


def _rows(source: Source, size: int) -> list[VectorBatch]:
    return list(source.batches(size))


def _joined(batches: list[VectorBatch]) -> Tensor | None:
    return torch.cat([batch.rows for batch in batches]) if batches else None


def _same(left: Tensor | None, right: Tensor | None) -> bool:
    if left is None or right is None:
        return left is right
    return left.dtype == right.dtype and torch.equal(left.nan_to_num(12345.0), right.nan_to_num(12345.0))


def gives_rows(source_class: type[Source], path: Path, **options: Any) -> None:
    """Yields batches of at most `size` rows in order, numbered from 0, in memory of their own; as many as it says."""
    source = source_class.open(path, **options)
    _require(
        isinstance(source.label, str) and "\n" not in source.label, f"`label` must be one line, got {source.label!r}"
    )
    for size in SIZES:
        expected = 0
        for batch in source.batches(size):
            _require(isinstance(batch, VectorBatch), f"must yield VectorBatch, got {type(batch).__name__}")
            _require(0 < len(batch) <= size, f"must yield 1 to {size} rows, got {len(batch)}")
            _require(batch.ids is not None, "must number its rows, `ids` is None")
            numbers = torch.arange(expected, expected + len(batch), dtype=torch.int64)
            _require(torch.equal(batch.ids, numbers), f"`ids` must go on with {expected}, got {batch.ids}")
            _require(source.dimension in (None, batch.dimension), f"`dimension` must be {batch.dimension}")
            before = batch.rows[0, 0].clone()
            batch.rows[0, 0] = before  # memory that may not be written kills the process, or raises
            expected += len(batch)
        _require(source.rows in (None, expected), f"`rows` must be {expected}, got {source.rows}")


def gives_the_same_again(source_class: type[Source], path: Path, **options: Any) -> None:
    """Gives the same rows when asked again, by another size, and by another instance, also side by side."""
    source = source_class.open(path, **options)
    first = _joined(_rows(source, SIZES[0]))
    for size in SIZES:
        _require(
            _same(first, _joined(_rows(source, size))), f"batches({size}) gave other rows than batches({SIZES[0]})"
        )
    _require(_same(first, _joined(_rows(source_class.open(path, **options), 3))), "another instance gave other rows")
    left, right = source.batches(2), source.batches(2)
    for one, other in zip(left, right, strict=True):
        _require(_same(one.rows, other.rows), "two iterators at once gave other rows")


def owns_its_memory(source_class: type[Source], path: Path, **options: Any) -> None:
    """Does not change rows that were handed out when it goes on, nor the file when rows are changed."""
    source = source_class.open(path, **options)
    kept = [(batch, batch.rows.clone()) for batch in source.batches(2)]
    for batch, rows in kept:
        _require(_same(batch.rows, rows), "a batch changed after the next one was read")
        batch.rows.fill_(7.0)
    _require(
        _same(_joined(_rows(source, 2)), _join_rows([rows for _, rows in kept])),
        "the file changed",
    )


def _join_rows(rows: list[Tensor]) -> Tensor | None:
    return torch.cat(rows) if rows else None


def groups_rows(source_class: type[Source], path: Path, **options: Any) -> None:
    """Labels, where there are any, index into the groups of their batch."""
    for batch in source_class.open(path, **options).batches(3):
        _require(not options.get("labels") or batch.labels is not None, "`labels` was asked for and batches have none")
        if batch.labels is not None:
            lowest, highest = int(batch.labels.min()), int(batch.labels.max())
            _require(
                lowest >= -1 and highest < len(batch.groups),
                f"labels {lowest} to {highest} for {len(batch.groups)} groups",
            )
            _require(all(isinstance(group, str) for group in batch.groups), "`groups` must be texts")


def names_rows(source_class: type[Source], path: Path, **options: Any) -> None:
    """Gives one text for each row asked, in the order asked, before and after the rows were read."""
    source = source_class.open(path, **options)
    count = sum(len(batch) for batch in source_class.open(path, **options).batches(1000))
    asked = [row for row in (count - 1, 0, count // 2, 0) if 0 <= row < count]
    before = source.names(asked)
    _require(len(before) == len(asked), f"`names` must give {len(asked)} texts, got {len(before)}")
    _require(all(isinstance(name, str) for name in before), "`names` must give texts")
    _rows(source, 3)
    _require(source.names(asked) == before, "`names` differ once the rows were read")
    _require(
        source.names(list(range(count)))[:1] == source.names([0] if count else []), "`names` depend on what is asked"
    )
    _require(source.names([]) == [], "`names` of no rows must be no names")


def has_a_fingerprint(source_class: type[Source], path: Path, **options: Any) -> None:
    """Has a short fingerprint that depends on the content: not on the instance, the place or what was read."""
    source = source_class.open(path, **options)
    first = source.fingerprint()
    _require(
        isinstance(first, str) and len(first) in range(8, 65),
        f"`fingerprint` must be 8 to 64 characters, got {first!r}",
    )
    _rows(source, 3)
    _require(source.fingerprint() == first, "`fingerprint` must stay the same")
    with TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        if path.is_dir():
            shutil.copytree(path, copy)
        else:
            shutil.copyfile(path, copy)
        moved = source_class.open(copy, **options)
        _require(moved.fingerprint() == first, "`fingerprint` must not depend on where the file lies")
        victim = _victim(copy)
        data = victim.read_bytes()
        for at in (0, len(data) // 2, len(data) - 1):
            victim.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            _require(moved.fingerprint() != first, f"`fingerprint` must change with byte {at:,} of {len(data):,}")


def _victim(path: Path) -> Path:
    """Return the file itself, or the largest one in a folder, hidden ones aside."""
    if not path.is_dir():
        return path
    files = [part for part in sorted(path.rglob("[!_.]*")) if part.is_file()]
    seen = [part for part in files if not any(name.startswith(("_", ".")) for name in part.relative_to(path).parts)]
    return max(seen, key=lambda part: part.stat().st_size)


def refuses_misuse(source_class: type[Source], path: Path, **options: Any) -> None:
    """Refuses a size that is none at once, an option that names nothing, and a path that is not there."""
    source = source_class.open(path, **options)
    for size in (0, -1):
        _refused(lambda size=size: source.batches(size), UsageError, f"batches({size})")  # type: ignore[misc]
    for option in ("select", "labels"):
        wrong = {**options, option: "no such thing \n at all"}
        _refused(lambda wrong=wrong: source_class.open(path, **wrong), EmbedwatchError, f"{option} that names nothing")  # type: ignore[misc]
    missing = path.with_name(f"missing-{path.name}")
    _require(not source_class.accepts(missing), "must not accept a path that does not exist")
    _refused(lambda: source_class.open(missing, **options), InputError, "a path that does not exist")


def _refused(attempt: Callable[[], object], kind: type[EmbedwatchError], what: str) -> None:
    try:
        attempt()
    except kind as error:
        _require("\n" not in str(error), f"{what} must be refused in one line, got {str(error)!r}")
    else:
        raise ContractViolation(f"{what} must be refused with {kind.__name__}")


def closes_its_files(source_class: type[Source], path: Path, **options: Any) -> None:
    """Closes the file when the iterator is abandoned, exhausted or never started."""
    source = source_class.open(path, **options)
    gc.collect()
    before = _open_files()
    _rows(source, 2)
    for _ in range(3):
        iterator = source.batches(1)
        next(iterator, None)
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
        del iterator
    source.batches(1)
    source.names([])
    _require(_open_files() <= before, f"left files open: {sorted(_open_files() - before)}")


def _open_files() -> set[str]:
    """Return the open files of this process, where the system tells."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return set()
    found = set()
    for link in folder.iterdir():
        try:
            found.add(f"{link.name} {link.readlink()}")
        except OSError:  # the folder's own descriptor, gone by now
            continue
    return {entry for entry in found if not entry.endswith("/fd")}


SOURCE_CONTRACT: dict[str, Clause] = {
    "rows": gives_rows,
    "same again": gives_the_same_again,
    "own memory": owns_its_memory,
    "groups": groups_rows,
    "names": names_rows,
    "fingerprint": has_a_fingerprint,
    "misuse": refuses_misuse,
    "files": closes_its_files,
}
"""Name to clause; each takes a Source class, a path and the options to open it with."""


def source_contract(source_class: type[Source], path: Path, **options: Any) -> None:
    """Run one good file, or folder, through all clauses.

    Raises:
        ContractViolation: for the first clause that is broken.
    """
    for clause in SOURCE_CONTRACT.values():
        clause(source_class, path, **options)


def hostile_variants(path: Path, folder: Path, *, seed: int = SEED) -> Iterator[Path]:
    """Yield damaged copies of a small file: cut off, with bytes changed, blown up, repeated.

    Each lies in a folder of its own under the same name. Of a folder, the largest file is damaged in a copy of all.
    """
    inside, victim = path.is_dir(), _victim(path)
    for index, (what, data) in enumerate(_damaged(victim.read_bytes(), random.Random(seed))):  # noqa: S311  # not for secrets
        place = folder / f"{index:03}-{what}"
        if inside:
            shutil.copytree(path, place / path.name)
            place.joinpath(path.name, victim.relative_to(path)).write_bytes(data)
        else:
            place.mkdir(parents=True)
            place.joinpath(path.name).write_bytes(data)
        yield place / path.name


def _damaged(data: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    size = len(data)
    for cut in sorted({0, 1, 7, 9, 64, size // 4, size // 2, 3 * size // 4, size - 9, size - 1}):
        if 0 <= cut < size:
            yield f"cut-{cut}", data[:cut]
    yield "longer", data + b"\0\xff more"
    yield "twice", data + data
    yield "zeros", bytes(size)
    yield "noise", rng.randbytes(size)
    yield "noise-after-head", data[:16] + rng.randbytes(max(size - 16, 0))
    for block, what in _HUGE:
        for at in sorted({0, 4, 8, 16, size // 3, size // 2, max(size - 40, 0), max(size - 8, 0)}):
            yield f"{what}-at-{at}", data[:at] + block[: size - at] + data[at + len(block) :]
    for number in range(FLIPS):
        changed = bytearray(data)
        # Headers and footers decide most: half of the changes go to the first and last bytes.
        reach = size if number % 2 else min(size, 200)
        for _ in range(1 + number % 3):
            at = rng.randrange(reach)
            changed[at if number % 4 else size - 1 - at] = rng.randrange(256)
        yield f"changed-{number}", bytes(changed)


def refuses_damage(source_class: type[Source], path: Path, folder: Path, **options: Any) -> None:
    """Read every hostile variant: each must be refused in one line that names it, or give proper rows.

    Raises:
        ContractViolation: for any other exception, for rows that are none, and for memory that grows beyond measure.
    """
    for variant in hostile_variants(path, folder):
        peak = _Peak()
        where = f"{source_class.name} on {variant.parent.name}"
        try:
            source_class.accepts(variant)
            source = source_class.open(variant, **options)
            for batch in source.batches(16):
                _require(source.dimension in (None, batch.dimension), f"{where}: `dimension` is not that of the rows")
            source.names([0] if source.rows else [])
        except InputError as error:
            _require("\n" not in str(error), f"{where}: must be refused in one line, got {str(error)!r}")
            _require(
                path.name.split(".")[0] in str(error) or path.is_dir(), f"{where}: must name the file, got {error}"
            )
        except UsageError as error:  # what an option names may be what was damaged
            _require(options and "\n" not in str(error), f"{where}: must raise InputError, got UsageError {error}")
        except Exception as error:
            raise ContractViolation(f"{where}: must raise InputError, got {type(error).__name__}: {error}") from error
        _require(peak.rise() < MEMORY_LIMIT, f"{where}: took over {MEMORY_LIMIT >> 20} MiB")


class _Peak:
    """How far the memory of this process rises above where it began; 0 where the system does not tell."""

    def __init__(self) -> None:
        with suppress(OSError):  # another system: a peak that lies behind us hides a smaller one
            Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # Linux: the peak begins anew
        self._start = self._now()

    def rise(self) -> int:
        """Return the rise in bytes."""
        return self._now() - self._start

    @staticmethod
    def _now() -> int:
        status = Path("/proc/self/status")
        if status.exists():
            lines = status.read_text(encoding="ascii", errors="replace").splitlines()
            return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM")), 0)
        try:
            import resource
        except ImportError:  # Windows
            return 0
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
