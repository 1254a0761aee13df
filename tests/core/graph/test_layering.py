"""Boxes on a page: no two overlap, and edges lead to the right."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from omniflow_core.graph.layering import Layout, Size, arrange

BOX = Size(width=80.0, height=40.0)


def page(count: int, *edges: tuple[int, int]) -> Layout:
    return arrange([BOX] * count, edges)


def test_layers_follow_the_longest_way() -> None:
    layout = page(4, (0, 1), (1, 2), (0, 2), (2, 3))
    columns = [place.x for place in layout.places]
    assert columns == sorted(columns)
    assert len(set(columns)) == 4


def test_edge_that_passes_a_layer_has_a_bend_in_it() -> None:
    layout = page(3, (0, 1), (1, 2), (0, 2))
    ((left, right, y),) = layout.bends[0, 2]
    assert (left, right) == (layout.places[1].x, layout.places[1].x + BOX.width)
    assert not layout.places[1].y <= y <= layout.places[1].y + BOX.height, "it goes round the box"
    assert layout.bends[0, 1] == ()


def test_edges_of_one_source_share_their_bends() -> None:
    layout = page(4, (0, 1), (1, 2), (1, 3), (0, 2), (0, 3))
    assert layout.bends[0, 2] == layout.bends[0, 3]


def test_edge_that_closes_a_cycle_leads_back() -> None:
    layout = page(3, (0, 1), (1, 2), (2, 1), (1, 1))
    assert layout.back_edges == {(2, 1), (1, 1)}
    assert layout.places[1].x < layout.places[2].x


def test_branches_do_not_cross_where_they_need_not() -> None:
    """Two chains side by side, given crosswise, come out one above the other."""
    layout = page(5, (0, 1), (0, 2), (2, 3), (1, 4))
    one_above_two = layout.places[1].y < layout.places[2].y
    assert one_above_two == (layout.places[4].y < layout.places[3].y)


def test_empty_page() -> None:
    assert page(0) == Layout(places=(), back_edges=frozenset(), bends={}, width=0.0, height=0.0)


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Size], list[tuple[int, int]]]:
    count = draw(st.integers(1, 14))
    ends = st.integers(0, count - 1)
    sizes = [Size(width=draw(st.integers(20, 200)), height=draw(st.integers(20, 120))) for _ in range(count)]
    return sizes, draw(st.lists(st.tuples(ends, ends), max_size=30))


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_boxes_do_not_overlap_and_edges_lead_to_the_right(case: tuple[list[Size], list[tuple[int, int]]]) -> None:
    sizes, edges = case
    layout = arrange(sizes, edges)
    boxes = [
        (place.x, place.y, place.x + size.width, place.y + size.height)
        for place, size in zip(layout.places, sizes, strict=True)
    ]
    for i, (left, top, right, bottom) in enumerate(boxes):
        assert left >= 0
        assert top >= -1e-6
        assert right <= layout.width + 1e-6
        assert bottom <= layout.height + 1e-6
        for other_left, other_top, other_right, other_bottom in boxes[:i]:
            assert right <= other_left or other_right <= left or bottom <= other_top or other_bottom <= top
    for source, target in set(edges) - layout.back_edges:
        assert boxes[source][2] < boxes[target][0]
        assert (source, target) in layout.bends
    assert layout.bends.keys().isdisjoint(layout.back_edges)
