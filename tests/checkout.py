"""This checkout: copies of it for tests that change or build it, and its scripts, which are in no package."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sysconfig
from functools import lru_cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
DERIVED = (".git", ".venv*", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "build", "dist")


def copy_checkout(destination: Path) -> Path:
    """Copy what git knows and what it does not ignore; without git, everything that is not derived."""
    git = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    listing = subprocess.run(git, cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        shutil.copytree(ROOT, destination, symlinks=True, ignore=shutil.ignore_patterns(*DERIVED))
        return destination
    for name in filter(None, listing.stdout.split("\0")):
        source, target = ROOT / name, destination / name
        if source.is_symlink() or source.exists():  # a file that was deleted and not yet committed is still listed
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return destination


def site_packages() -> list[str]:
    """Return where the running interpreter keeps the packages of others."""
    paths = sysconfig.get_paths()
    return sorted({paths["purelib"], paths["platlib"]})


@lru_cache
def load_script(path: Path) -> ModuleType:
    """Load a script as a module, once; those of one name in several folders stay apart."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
