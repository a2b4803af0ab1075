"""Names the packages: `embedwatch` lies in its own folder, `embedwatch_model` in `model/`.

A top-level import name `model` would clash with the `model.py` that half of all training repositories have.
Everything else stands in pyproject.toml, which cannot express a mapped folder and automatic discovery together.
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["embedwatch", "embedwatch.*"]),
        "embedwatch_model",
        *(f"embedwatch_model.{name}" for name in find_packages("model")),
    ],
    package_dir={"embedwatch_model": "model"},
)
