"""Maps: what is kept, how states are turned, and how points are packed."""

from __future__ import annotations

import base64
import importlib.util
import struct

import pytest
import torch
from torch import Tensor

from embedwatch.batch import VectorBatch
from embedwatch.core.exhibit import Exhibit
from embedwatch.mapping import LEAST_POINTS, Frame, KeptRows, Layout, fit_plane, lay_out, principal_plane
from embedwatch.report.maps import MOST_CLASSES, MOST_NAME_BYTES, STEPS, map_chart, witnesses_of
from tests.report.inputs import HOSTILE, verdict

ROWS = torch.randn(300, 6, generator=torch.Generator().manual_seed(0)) * torch.tensor([5.0, 3, 1, 1, 0.5, 0.1])


def kept(rows: Tensor, capacity: int = 100, step: int = 300, ids: Tensor | None = None) -> KeptRows:
    found = KeptRows(capacity)
    numbers = torch.arange(len(rows)) if ids is None else ids
    for start in range(0, len(rows), step):
        found.offer(VectorBatch(rows[start : start + step], ids=numbers[start : start + step]))
    return found


def frame(places: Tensor, **more: Tensor) -> Frame:
    count = len(places)
    ids, norms = more.get("ids", torch.arange(count)), more.get("norms", torch.linspace(1, 2, count))
    return Frame("state", ids, norms, torch.zeros(count, dtype=torch.int64), (Layout("PCA", places),))


def unpacked(code: str, text: str) -> tuple[int, ...]:
    data = base64.b64decode(text)
    return struct.unpack(f"<{len(data) // struct.calcsize(code)}{code}", data)


def test_what_is_kept_depends_on_no_order() -> None:
    order = torch.randperm(len(ROWS), generator=torch.Generator().manual_seed(1))
    first, second = kept(ROWS, step=7), kept(ROWS[order], step=300, ids=order)
    assert set(first.ids.tolist()) == set(second.ids.tolist())
    assert len(first.ids) == len(first.rows) == len(first.groups) == 100
    assert torch.equal(first.rows, ROWS[first.ids])


def test_rows_that_are_not_finite_are_left_out() -> None:
    rows = ROWS[:20].clone()
    rows[3, 0], rows[5, 1] = float("nan"), float("inf")
    assert {3, 5}.isdisjoint(kept(rows).ids.tolist())


def test_the_plane_is_that_of_most_variance() -> None:
    places, share = principal_plane(ROWS)
    values = torch.linalg.svdvals(ROWS - ROWS.mean(0)).square()
    assert share == pytest.approx(float(values[:2].sum() / values.sum()), abs=1e-4)
    torch.testing.assert_close(places.square().sum(0), values[:2], rtol=1e-3, atol=1e-2)


def test_a_state_that_only_turned_lies_where_it_was() -> None:
    turn, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(2)))
    first, second = lay_out([("a", kept(ROWS)), ("b", kept(ROWS @ turn + 7))])
    torch.testing.assert_close(first.layouts[0].places, second.layouts[0].places, rtol=1e-3, atol=1e-2)
    assert [layout.method for layout in first.layouts][:2] == ["PCA", "t-SNE"]


def test_without_common_rows_nothing_is_turned() -> None:
    places = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(fit_plane(places, places, places), places, atol=1e-6)
    one, two = kept(ROWS[:60]), kept(ROWS[:60], ids=torch.arange(1_000, 1_060))
    assert len(lay_out([("a", one), ("b", two)])) == 2


def test_too_few_rows_have_no_map() -> None:
    assert lay_out([("a", kept(ROWS[: LEAST_POINTS - 1]))]) == []
    assert map_chart("m", "map", [], lambda place, ids: []) is None


METHODS = ("PCA", "t-SNE", *(("UMAP",) if importlib.util.find_spec("umap") is not None else ()))
"""Those that this installation has: the package of UMAP is an extra."""


@pytest.mark.slow
@pytest.mark.parametrize("number", [LEAST_POINTS, 12, 400])
@pytest.mark.parametrize("method", METHODS)
def test_groups_lie_together_in_every_map(method: str, number: int) -> None:
    groups = torch.arange(number) % 2
    rows = torch.randn(number, 8, generator=torch.Generator().manual_seed(0)) + 20 * groups[:, None]
    (frame,) = lay_out([("a", kept(rows, capacity=number))])
    layout = next(each for each in frame.layouts if each.method == method)
    assert layout.places.shape == (number, 2)
    assert bool(layout.places.isfinite().all())
    if number > 12:
        points = frame.ids if layout.points is None else frame.ids[layout.points]
        apart = torch.cdist(layout.places, layout.places).fill_diagonal_(torch.inf)
        near = groups[points[apart.argmin(1)]]
        assert float((near == groups[points]).double().mean()) > 0.98


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_rows_that_are_all_alike_have_a_map_too(method: str) -> None:
    (frame,) = lay_out([("a", kept(torch.ones(60, 8)))])
    layout = next(each for each in frame.layouts if each.method == method)
    assert bool(layout.places.isfinite().all())


def test_points_survive_packing() -> None:
    places = torch.tensor([[0.0, -1.0], [10.0, 1.0], [2.5, 0.0]] * 4)
    chart = map_chart("m", "map", [frame(places)], lambda place, ids: [str(row) for row in ids])
    assert chart is not None
    (shown,) = chart.data["frames"]
    layout = shown["layouts"][0]
    assert layout["box"] == [0.0, 10.0, -1.0, 1.0]
    x = [layout["box"][0] + 10.0 * step / STEPS for step in unpacked("H", layout["x"])]
    assert x == pytest.approx([0.0, 10.0, 2.5] * 4, abs=10 / STEPS)
    assert chart.data["names"] == [None]  # numbers need no second time
    assert unpacked("i", shown["ids"]) == tuple(range(12))


def test_long_names_are_cut_until_they_fit() -> None:
    count = 20_000
    places = torch.rand(count, 2, generator=torch.Generator().manual_seed(0))
    chart = map_chart("m", "map", [frame(places)], lambda place, ids: [f"{row} {'é' * 200}" for row in ids])
    assert chart is not None
    names = chart.data["names"][0]
    assert sum(len(name.encode()) for name in names) < MOST_NAME_BYTES
    assert names[19_999].startswith("19999 é")


def test_small_classes_share_a_colour() -> None:
    places = torch.rand(100, 2, generator=torch.Generator().manual_seed(0))
    members = [point % 40 for point in range(100)]
    groups = [("group", [f"g{n}" for n in range(40)], [members])]
    chart = map_chart("m", "map", [frame(places)], lambda place, ids: [HOSTILE for _ in ids], groups=groups)
    assert chart is not None
    colours = {each["name"]: each for each in chart.data["frames"][0]["colours"]}
    assert list(colours) == ["group", "norm", "cell"]
    assert len(colours["group"]["classes"]) == MOST_CLASSES + 1
    assert colours["group"]["classes"][-1] == "other"
    assert max(unpacked("B", colours["group"]["index"])) == MOST_CLASSES


def test_witnesses_are_rows_that_a_grave_verdict_names() -> None:
    shown = [
        Exhibit.build("hubs", "table", "x", ("row", "times"), [(7, 3), (-1, 2)]),
        Exhibit.build("quiet", "table", "x", ("row",), [(9,)]),
    ]
    found = witnesses_of([verdict(exhibits=["hubs"]), verdict(status="ok", exhibits=["quiet"])], shown)
    assert found == {7: "collapse title: hubs"}
    places = torch.rand(20, 2, generator=torch.Generator().manual_seed(0))
    chart = map_chart("m", "map", [frame(places)], lambda place, ids: [str(row) for row in ids], witnesses=[found])
    assert chart is not None
    assert chart.data["frames"][0]["witnesses"] == [[7, "collapse title: hubs"]]
