"""The registry: definition registers, entry points add, nothing else."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from embedwatch.core import Check, Evidence, RegistrationError, Sink, Source, Statistic, UsageError, registry


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test registers into copies."""
    monkeypatch.setattr(registry, "_classes", {kind: dict(found) for kind, found in registry._classes.items()})
    monkeypatch.setattr(registry, "_scanned", set(registry._scanned))


def define(
    name: Any, doc: str | None = "Looks at nothing.", cls: str = "Nothing", module: str = "m", **keywords: Any
) -> type:
    body = {"name": name, "__doc__": doc, "__module__": module, "evaluate": lambda self, *args: Evidence(None)}
    return type(Check)(cls, (Check,), body, **keywords)


class TestDefining:
    def test_a_class_with_a_name_is_registered(self) -> None:
        cls = define("looks_at_nothing")
        assert registry.registered(Check)["looks_at_nothing"] is cls
        assert registry.get(Check, "looks_at_nothing") is cls

    def test_only_in_its_own_kind(self) -> None:
        define("looks_at_nothing")
        assert "looks_at_nothing" not in registry.registered(Sink)

    def test_a_class_without_a_name_is_a_base(self) -> None:
        before = dict(registry._classes["check"])

        class Base(Check):
            pass

        assert registry._classes["check"] == before

    def test_a_subclass_does_not_inherit_the_registration(self) -> None:
        cls = define("looks_at_nothing")
        type(Check)("Configured", (cls,), {"__doc__": "A variant."})
        assert registry.registered(Check)["looks_at_nothing"] is cls

    def test_register_false_keeps_a_class_out(self) -> None:
        define("looks_at_nothing", register=False)
        assert "looks_at_nothing" not in registry.registered(Check)

    def test_names_come_in_alphabetical_order(self) -> None:
        define("zz_last", cls="Z")
        define("aa_first", cls="A")
        names = list(registry.registered(Check))
        assert names == sorted(names)
        assert {"aa_first", "zz_last"} <= set(names)

    def test_one_name_for_two_classes_is_refused_with_both_homes(self) -> None:
        define("looks_at_nothing", module="first_home")
        with pytest.raises(RegistrationError, match="defined twice, in first_home and second_home"):
            define("looks_at_nothing", module="second_home")

    def test_the_same_class_may_be_defined_again(self) -> None:
        define("looks_at_nothing")
        again = define("looks_at_nothing")  # what reloading a module does
        assert registry.registered(Check)["looks_at_nothing"] is again

    @pytest.mark.parametrize("name", ["Upper", "with-dash", "with space", "", "9th"])
    def test_refuses_a_name_that_is_not_snake_case(self, name: str) -> None:
        with pytest.raises(RegistrationError, match="snake case"):
            define(name)

    @pytest.mark.parametrize("doc", [None, "", "no full stop", "No full stop\n\nlater."])
    def test_refuses_a_docstring_that_is_no_sentence(self, doc: str | None) -> None:
        with pytest.raises(RegistrationError, match="docstring"):
            define("looks_at_nothing", doc)

    def test_the_summary_is_the_first_line(self) -> None:
        assert define("looks_at_nothing", "\n  First line.\n\n  More.").summary() == "First line."


class TestGet:
    def test_names_the_nearest_and_the_command_that_shows_all(self) -> None:
        define("looks_at_nothing")
        with pytest.raises(UsageError) as caught:
            registry.get(Check, "looks_at_nothign")
        assert str(caught.value) == (
            'no check "looks_at_nothign"; did you mean "looks_at_nothing"? `embedwatch list checks` shows all.'
        )

    def test_says_nothing_of_a_nearest_where_there_is_none(self) -> None:
        with pytest.raises(UsageError) as caught:
            registry.get(Check, "qqqqqqqqq")
        assert str(caught.value) == 'no check "qqqqqqqqq"; `embedwatch list checks` shows all.'


class TestScan:
    @pytest.mark.parametrize("base", [Statistic, Check, Sink, Source])
    def test_finds_every_module_of_our_folder(self, base: type[Any]) -> None:
        registry.scan(base.kind)
        folder = Path(registry.__file__).parents[1] / registry.FOLDERS[base.kind].split(".")[1]
        for path in folder.glob("*.py"):
            if path.stem != "__init__":
                assert f"{registry.FOLDERS[base.kind]}.{path.stem}" in sys.modules

    def test_a_folder_that_does_not_exist_yet_is_empty(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(registry.FOLDERS, "check", "embedwatch.no_such_folder")
        registry._scanned.difference_update({"check", registry.PLUGIN_GROUP})
        registry.scan("check")

    def test_a_missing_import_inside_our_own_package_is_not_hidden(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        tmp_path.joinpath("broken_folder").mkdir()
        tmp_path.joinpath("broken_folder", "__init__.py").write_text("import no_such_module_at_all\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.setitem(registry.FOLDERS, "check", "broken_folder")
        registry._scanned.difference_update({"check", registry.PLUGIN_GROUP})
        with pytest.raises(ModuleNotFoundError, match="no_such_module_at_all"):
            registry.scan("check")


GOOD = '''
from embedwatch.core import Check, Evidence

class Foreign(Check):
    """Comes from another package."""

    name = "foreign_check"

    def evaluate(self, snapshot, reference=None, history=None):
        return Evidence(None)
'''


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed distribution with one good and one broken plug-in."""
    info = tmp_path / "somebodys_checks-1.0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-checks\nVersion: 1.0\n")
    info.joinpath("entry_points.txt").write_text(
        "[embedwatch.plugins]\nbroken = plugin_that_breaks\ngood = plugin_that_works:Foreign\n"
        "absent = plugin_that_is_not_there\n"
    )
    tmp_path.joinpath("plugin_that_works.py").write_text(GOOD)
    tmp_path.joinpath("plugin_that_breaks.py").write_text("raise OSError('no licence file')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    registry._scanned.difference_update({"check", registry.PLUGIN_GROUP})
    yield tmp_path
    sys.modules.pop("plugin_that_works", None)


class TestEntryPoints:
    def test_another_packages_plugin_is_found(self, plugins: Path) -> None:
        found = registry.registered(Check)["foreign_check"]
        assert found.__module__ == "plugin_that_works"
        assert found.summary() == "Comes from another package."

    def test_a_broken_one_is_logged_and_left_out(self, plugins: Path, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            found = registry.registered(Check)
        assert "foreign_check" in found  # the broken one comes first, and stops nobody
        assert {record.args[0] for record in caplog.records if record.args} == {"broken", "absent"}
        assert "no licence file" in caplog.text

    def test_they_are_asked_once(self, plugins: Path, caplog: pytest.LogCaptureFixture) -> None:
        registry.registered(Check)
        caplog.clear()
        registry.registered(Check)
        assert not caplog.records
