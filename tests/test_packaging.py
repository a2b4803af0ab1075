"""What is built and installed: a wheel, an editable checkout, and the pins that CI installs with."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import embedwatch
from tests.checkout import ROOT, copy_checkout, site_packages

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BIN = "Scripts" if sys.platform == "win32" else "bin"


def run(*command: str | Path, cwd: Path, timeout: float = 300) -> str:
    """Run a command apart from this checkout, and return what it printed."""
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def clean_environment(folder: Path) -> Path:
    """Make an environment that sees the packages of others where they are already, and nothing of ours."""
    venv.EnvBuilder(with_pip=False, symlinks=sys.platform != "win32").create(folder)
    python = folder / BIN / "python"
    purelib = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip()
    # A folder named in a .pth file is searched, but its own .pth files are not read: an editable install stays out.
    Path(purelib, "packages_of_others.pth").write_text("\n".join(site_packages()) + "\n", encoding="utf-8")
    return python


def install(python: Path, *what: str | Path) -> None:
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet")
    run(*pip, "--no-deps", "--no-build-isolation", "--ignore-installed", *what, cwd=python.parent)


def origin(python: Path, module: str, cwd: Path) -> Path:
    """Return the file from which a module is imported."""
    return Path(run(python, "-c", f"import {module}; print({module}.__file__)", cwd=cwd).strip()).resolve()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, so that both are complete."""
    checkout = copy_checkout(tmp_path_factory.mktemp("build") / "checkout")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", "dist", cwd=checkout)
    (built,) = checkout.joinpath("dist").glob("*.whl")
    return built


@pytest.mark.slow
class TestWheel:
    def test_holds_both_packages_and_nothing_else(self, wheel: Path) -> None:
        names = set(zipfile.ZipFile(wheel).namelist())
        for folder, package in (("embedwatch", "embedwatch"), ("model", "embedwatch_model")):
            for path in ROOT.joinpath(folder).rglob("*"):
                if path.suffix in (".py", ".js", ".css", ".html", ".svg", ".LICENSE") or path.name == "py.typed":
                    assert f"{package}/{path.relative_to(ROOT / folder).as_posix()}" in names
        tops = {name.split("/")[0] for name in names}
        assert tops == {"embedwatch", "embedwatch_model", f"embedwatch-{embedwatch.__version__}.dist-info"}

    def test_metadata(self, wheel: Path) -> None:
        archive = zipfile.ZipFile(wheel)
        info = f"embedwatch-{embedwatch.__version__}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
        assert metadata["Version"] == embedwatch.__version__
        assert metadata["License-Expression"] == "Apache-2.0"
        assert metadata["Requires-Python"] == ">=3.10"
        assert metadata["Description-Content-Type"] == "text/markdown"
        assert b"Apache License" in archive.read(f"{info}/licenses/LICENSE")
        assert b"embedwatch = embedwatch.cli:main" in archive.read(f"{info}/entry_points.txt")

    def test_works_once_installed(self, wheel: Path, tmp_path: Path) -> None:
        python = clean_environment(tmp_path / "env")
        install(python, wheel)
        for module in ("embedwatch", "embedwatch_model"):
            assert origin(python, module, tmp_path).is_relative_to(tmp_path / "env")
        assert run(python.with_name("embedwatch"), "--help", cwd=tmp_path).startswith("Usage: embedwatch")
        assert "norms" in run(python.with_name("embedwatch"), "list", "statistics", cwd=tmp_path)


@pytest.mark.slow
class TestEditable:
    def test_both_packages_resolve_to_the_checkout_and_follow_it(self, tmp_path: Path) -> None:
        checkout = copy_checkout(tmp_path / "checkout")
        python = clean_environment(tmp_path / "env")
        install(python, "--editable", checkout)
        assert origin(python, "embedwatch", tmp_path) == checkout / "embedwatch" / "__init__.py"
        assert origin(python, "embedwatch_model", tmp_path) == checkout / "model" / "__init__.py"
        checkout.joinpath("model", "brand_new.py").write_text("")
        checkout.joinpath("embedwatch", "core", "brand_new.py").write_text("")
        assert origin(python, "embedwatch_model.brand_new", tmp_path) == checkout / "model" / "brand_new.py"
        assert origin(python, "embedwatch.core.brand_new", tmp_path).is_relative_to(checkout)
        assert run(python.with_name("embedwatch"), "--help", cwd=tmp_path).startswith("Usage: embedwatch")


@pytest.fixture(scope="module")
def pins() -> dict[str, Version]:
    lines = ROOT.joinpath("constraints.txt").read_text(encoding="utf-8").split("\n")
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


@pytest.fixture(scope="module")
def requirements() -> list[Requirement]:
    data = tomllib.loads(ROOT.joinpath("pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = [*data["dependencies"], *(line for extra in data["optional-dependencies"].values() for line in extra)]
    return [each for each in map(Requirement, lines) if each.name != "embedwatch"]


class TestPins:
    def test_are_plain_public_versions(self, pins: dict[str, Version]) -> None:
        text = ROOT.joinpath("constraints.txt").read_text(encoding="utf-8")
        for line in text.strip().split("\n"):
            assert line.startswith("#") or re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.]*", line), line
        assert "://" not in text
        assert all(version.local is None for version in pins.values())

    def test_cover_every_requirement_within_its_range(
        self, pins: dict[str, Version], requirements: list[Requirement]
    ) -> None:
        for requirement in requirements:
            assert pins[canonicalize_name(requirement.name)] in requirement.specifier, requirement

    def test_the_makefile_pins_what_it_installs_by_itself(self, pins: dict[str, Version]) -> None:
        text = ROOT.joinpath("Makefile").read_text(encoding="utf-8")
        (line,) = re.findall(r"^FILES_ONLY := (.+)$", text, flags=re.M)
        for name, version in (word.split("==") for word in line.split()):
            assert pins[canonicalize_name(name)] == Version(version)


def test_typings_lead_to_the_model() -> None:
    """Mypy sees `embedwatch_model` through this link, since it cannot follow the mapping of an editable install."""
    assert ROOT.joinpath("typings", "embedwatch_model").resolve() == ROOT / "model"
