"""Which packages are installed, beside the ranges in the metadata of embedwatch, and what the extras would bring."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from embedwatch.cli.doctor.findings import Finding

__all__ = ["BRINGS", "examine_packages"]

OWN = "embedwatch"
BRINGS = {
    "daemon": "the commands `serve`, `config` and `demo`",
    "umap": "a third kind of map in `embedwatch report`",
    "lightning": "the callback for the Trainer of Lightning",
    "testing": "`embedwatch.testing`: the laws and contracts, for plug-ins of your own",
    "demo": "a trained sentence encoder and word vectors, as packages",
    "real": "more trained models for the tests of embedwatch",
    "oracles": "independent implementations, with which the tests compare",
    "dev": "what developers of embedwatch need",
}
"""What people get with each extra."""


def examine_packages(own: Distribution | None = None) -> list[Finding]:
    """Return Python, what embedwatch requires, and its extras.

    Args:
        own: metadata of embedwatch; by default those of what is installed.
    """
    if own is None:
        try:
            own = distribution(OWN)
        except PackageNotFoundError:
            told = "embedwatch runs from a folder and is not installed, so nothing is known of its ranges"
            return [Finding("packages", OWN, "warn", told, "pip install -e . in the checkout")]
    needed = [Requirement(line) for line in own.requires or []]
    plain = [each for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})]
    extras = own.metadata.get_all("Provides-Extra") or []
    return [
        _python(own),
        *(_package(each) for each in sorted(plain, key=lambda each: each.name.lower())),
        *(_extra(name, list(_of_extra(needed, plain, name))) for name in extras),
    ]


def _python(own: Distribution) -> Finding:
    wanted, have = (own.metadata.get_all("Requires-Python") or [""])[0], platform.python_version()
    if SpecifierSet(wanted).contains(have, prereleases=True):
        return Finding("packages", "python", "ok", f"{have}, needs {wanted or 'any'}")
    return Finding("packages", "python", "fail", f"{have}, needs {wanted}", f"make an environment with Python {wanted}")


def _package(needed: Requirement) -> Finding:
    have, ranges = _installed(needed.name), str(needed.specifier) or "any"
    if have is None:
        return Finding("packages", needed.name, "fail", f"missing, needs {ranges}", _install(needed))
    if not needed.specifier.contains(have, prereleases=True):
        return Finding("packages", needed.name, "fail", f"{have}, needs {ranges}", _install(needed))
    return Finding("packages", needed.name, "ok", f"{have}, needs {ranges}")


def _of_extra(needed: list[Requirement], plain: list[Requirement], name: str) -> Iterator[Requirement]:
    """Yield what an extra adds, on this Python and system, but for other extras of ours that it names."""
    for each in needed:
        added = each not in plain and each.marker is not None and each.marker.evaluate({"extra": name})
        if added and canonicalize_name(each.name) != OWN:
            yield each


def _extra(name: str, needed: list[Requirement]) -> Finding:
    brings = BRINGS.get(name, "")
    have = {each.name: _installed(each.name) for each in needed}
    off = [each for each in needed if (got := have[each.name]) and not each.specifier.contains(got, prereleases=True)]
    if off:
        told = ", ".join(f"{each.name} is {have[each.name]}, needs {each.specifier}" for each in off)
        return Finding("extras", name, "warn", told, "pip install " + " ".join(f"'{_ranged(each)}'" for each in off))
    missing = [each.name for each in needed if have[each.name] is None]
    if missing:
        told = f"not installed: {', '.join(missing)}; brings {brings}" if brings else f"not installed: {missing}"
        return Finding("extras", name, "info", told, f"pip install 'embedwatch[{name}]' where you want that")
    return Finding("extras", name, "ok", f"installed: {brings}" if brings else "installed")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _ranged(needed: Requirement) -> str:
    return f"{needed.name}{needed.specifier}"


def _install(needed: Requirement) -> str:
    return f"pip install '{_ranged(needed)}'"
