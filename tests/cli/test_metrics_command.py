"""`embedwatch metrics`: the whole catalogue, and an estimate that a real Monitor and the real sink agree with."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from torch.nn.functional import cross_entropy

from embedwatch import watch
from embedwatch.cli import main
from embedwatch.core import Provenance, Snapshot, Space, UsageError
from embedwatch.exposition import SERVED, catalogue
from embedwatch.operations.estimate import EXAMINED, estimate, roles_of, specimen
from embedwatch.sinks.prometheus import Prometheus
from embedwatch_model import ModelConfig, Transformer
from tests.daemon.serving import ask, send, serving, until
from tests.sinks.scraping import fetch

BUDGET = 2_000
"""Series of a model of 32 layers at the defaults of a Monitor."""
LAYERS = 32
PLACES, ATTENTION = 11, 8
"""What a Monitor finds: four layers, tokens, tokens with positions, the last norm, and four that are no modules; then
the attention of some layers."""
UNNAMED = 0.08
"""More series are told of a model whose tokenizer is known than this one has, which comes without."""
NEAR = 0.08
"""Share by which the estimate may lie above a training that gives no validation loss and the like."""
UNASKED = 0.25
"""Share of the verdicts that so short a training, of a model without a tokenizer, does not ask for."""
NOT_EVERYWHERE = {
    *(f"embedwatch_attention_{name}_ratio" for name in ("band", "learned_sink", "long_range", "start_over_middle")),
    "embedwatch_label_overflow_total",
}
"""What is measured of long texts only, or of models with sinks that are learned; and labels of words, which need a
tokenizer."""


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["metrics", *arguments])


def shown(*arguments: str) -> Any:
    result = run("--json", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def exposed(url: str) -> Counter[str]:
    """Return how many series each family has on a page."""
    found: Counter[str] = Counter()
    family = ""
    for line in fetch(url).body.decode().splitlines():
        if line.startswith("#"):
            family = line.split()[2]
        else:
            found[family] += 1
    return found


def numbered(name: str, number: int) -> str:
    """Return a name of the same length that ends in a number of two digits."""
    return f"{name[:-2]}{number:02}"


@pytest.fixture(scope="module")
def deep() -> tuple[Counter[str], int, int]:
    """Series by family, bytes of the page and places of a short training of many layers, watched at the defaults."""
    torch.manual_seed(0)
    model = Transformer(ModelConfig(vocabulary=100, d_model=32, layers=LAYERS, heads=2, length=64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with Prometheus(0) as sink:
        with watch(model, sinks=[sink]) as monitor:
            for _ in range(2):
                tokens = torch.randint(1, 100, (4, 64))
                loss = cross_entropy(model(tokens).logits.flatten(0, 1), tokens.flatten())
                loss.backward()
                optimizer.step()
                monitor.step(loss=loss.detach(), lr=1e-3)
            monitor.flush()
        return exposed(sink.url), len(fetch(sink.url).body), len(monitor.snapshots)


class TestCatalogue:
    def test_every_family_is_shown_with_all_that_is_known(self) -> None:
        families = catalogue()
        entries = shown()
        assert [entry["name"] for entry in entries] == sorted(families)
        for entry in entries:
            family = families[entry["name"]]
            assert entry == {
                "name": family.name,
                "type": family.kind,
                "labels": list(family.labels),
                "unit": family.unit,
                "help": family.help,
            }

    def test_the_table_is_aligned(self) -> None:
        head, *lines = run().stdout.splitlines()
        assert len(lines) == len(catalogue())
        for column in ("type", "labels", "unit", "help"):
            at = head.index(column)
            assert all(line[at - 2 : at] == "  " for line in lines)
            assert any(line[at] != " " for line in lines)

    def test_what_is_looked_for_is_found_in_names_and_texts(self) -> None:
        assert [entry["name"] for entry in shown("--grep", "WINDOW_rows$")] == ["embedwatch_window_rows"]
        by_text = shown("--grep", "how many factors √D lie between")
        assert "embedwatch_input_scale_power" in [entry["name"] for entry in by_text]

    def test_units_are_those_of_the_metrics(self) -> None:
        units = {entry["name"]: entry["unit"] for entry in shown()}
        assert units["embedwatch_effective_rank"] == "dimensions"
        assert units["embedwatch_window_timestamp_seconds"] == "seconds"
        assert all(unit == "seconds" for name, unit in units.items() if name.endswith(("_seconds", "_seconds_total")))

    def test_markdown_has_a_row_for_each(self) -> None:
        lines = run("--markdown").stdout.splitlines()
        assert lines[:2] == ["| name | type | labels | unit | help |", "| --- | --- | --- | --- | --- |"]
        assert len(lines) == len(catalogue()) + 2

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (["--grep", "nothing like it"], "must match a family"),
            (["--grep", "("], "regular expression"),
            (["--places", "3"], "--estimate"),
            (["--heads", "3"], "--estimate"),
            (["--daemon"], "--estimate"),
            (["--json", "--markdown"], "exclude"),
            (["--estimate", "--places", "0"], "--places"),
            (["--estimate", "--places", "99999999999999999999"], "--places"),
            (["--estimate", "--heads", "100001"], "--heads"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, arguments: list[str], said: str) -> None:
        result = run(*arguments)
        assert result.exit_code == 2
        assert said in result.stderr


class TestEstimate:
    def test_a_deep_model_stays_within_the_budget(self, deep: tuple[Counter[str], int, int]) -> None:
        series, _, places = deep
        assert places == PLACES + ATTENTION + len(EXAMINED)
        assert series.total() < BUDGET

    def test_it_is_what_a_real_monitor_exports(self, deep: tuple[Counter[str], int, int]) -> None:
        series, size, _ = deep
        made = estimate(places=PLACES, attention=ATTENTION)
        assert series.total() <= made.total.series <= series.total() * (1 + NEAR + UNNAMED)
        assert size * (1 - NEAR) <= made.total.bytes <= size * (1 + 2 * (NEAR + UNNAMED))
        wrong = {name: (made.families[name].series, count) for name, count in series.items() if name in made.families}
        apart = {
            name for name, (told, found) in wrong.items() if abs(told - found) > max(2, UNASKED * found)
        } - NOT_EVERYWHERE
        assert not apart
        assert set(series) <= set(made.families) | {"embedwatch_check_failed_timestamp_seconds"}

    def test_many_places_and_models_are_what_the_sink_makes_of_them(self) -> None:
        """The same windows, written as often as the estimate multiplies them."""
        places, models = 20, 3
        with Prometheus(0) as sink:
            for model in range(models):
                for role, count in roles_of(places, attention=ATTENTION).items():
                    snapshot, verdicts = specimen(role)
                    for index in range(count):
                        space = Space(numbered(snapshot.space.model, model), numbered(snapshot.space.place, index))
                        sink.write(Snapshot(space, snapshot.measurements, snapshot.provenance), verdicts)
            series, size = exposed(sink.url), len(fetch(sink.url).body)
        made = estimate(places=places, models=models)
        assert {name: size.series for name, size in made.families.items()} == dict(series)
        assert made.total.bytes == pytest.approx(size, rel=NEAR)

    def test_it_says_when_the_sink_would_leave_series_out(self) -> None:
        made = estimate(places=8, heads=64)
        with Prometheus(0) as sink:
            snapshot, verdicts = specimen("head")
            for layer in range(made.roles["hidden"]):
                for head in range(64):
                    space = Space("m", f"layers.{layer}", head=str(head))
                    sink.write(Snapshot(space, snapshot.measurements, Provenance(1.0, rows=10)), verdicts)
            dropped = re.search(r"^embedwatch_series_dropped (\S+)$", fetch(sink.url).body.decode(), re.M)
        assert made.room < 0
        assert dropped is not None
        assert float(dropped[1]) > 0
        assert f"{-made.room:,} would be left out" in run("--estimate", "--places", "8", "--heads", "64").stdout
        assert shown("--estimate", "--places", "8", "--heads", "64")["left_out"] == -made.room

    def test_what_is_shown_adds_up(self) -> None:
        data = shown("--estimate", "--places", "12", "--models", "2")
        assert data["models"] == 2
        assert sum(data["places"].values()) == 12 + ATTENTION + len(EXAMINED)
        assert sum(family["series"] for family in data["families"].values()) == data["series"]
        assert sum(family["bytes"] for family in data["families"].values()) == data["bytes"]
        text = run("--estimate", "--places", "12", "--models", "2").stdout
        rows = [re.split(r"  +", line.strip()) for line in text.split("\n\n")[0].splitlines()[1:]]
        numbers = {name: int(series.replace(",", "")) for name, series, _, _ in rows}
        assert numbers.pop("total") == sum(numbers.values()) == data["series"]
        assert f"hidden {data['of_one_place']['hidden']}" in text
        assert "room for" in text

    def test_what_a_daemon_adds_is_what_a_real_one_has(self, tmp_path: Path) -> None:
        """Once with its usual requests, before anything was sent: all else is a Monitor's."""
        with serving(tmp_path, interval=0.2) as served:
            for path in ("/-/healthy", "/-/ready"):
                assert ask(served.port, path).status == 200
            posts = ("/api/v1/ingest/m/p", "/api/v1/parcels")
            assert [send(served.port, b"", path).status for path in posts] == [400, 415]
            until(lambda: b'handler="/metrics"' in ask(served.port, "/metrics").body, "a scrape")
            until(lambda: b"embedwatch_state_saved_timestamp_seconds{" in ask(served.port, "/metrics").body, "a state")
            lines = [line for line in ask(served.port, "/metrics").body.decode().splitlines() if line[:1] != "#"]
        plain, made = estimate(), estimate(daemon=True)
        added = set(made.families) - set(plain.families)
        real = [line for line in lines if "embedwatch/daemon" in line or 'place="daemon"' in line]
        real += [line for line in lines if line not in real and re.split("[{ ]", line)[0] in added]
        assert made.daemon.series == len(real)
        assert made.total.series == plain.total.series + made.daemon.series
        assert {f.name for f in SERVED} <= added
        data = shown("--estimate", "--daemon")
        assert (data["daemon"], data["series"]) == (made.daemon.series, made.total.series)
        assert f"The daemon itself has {made.daemon.series}." in run("--estimate", "--daemon").stdout
        assert "would be left out; run several" in run("--estimate", "--daemon", "--models", "99").stdout

    def test_defaults_are_those_of_the_text(self) -> None:
        assert shown("--estimate") == shown("--estimate", "--places", "10", "--models", "1", "--heads", "0")

    def test_few_places_are_those_that_a_monitor_always_has(self) -> None:
        assert list(roles_of(2)) == ["watching", "training", *EXAMINED]
        assert roles_of(2, heads=5) == roles_of(2)

    @pytest.mark.parametrize(("name", "number"), [("places", 0), ("models", 0), ("heads", -1)])
    def test_numbers_out_of_range_are_refused(self, name: str, number: int) -> None:
        wrong: dict[str, Any] = {name: number}
        with pytest.raises(UsageError, match=f"`{name}` must be at least"):
            estimate(**wrong)
