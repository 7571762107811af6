"""Edges that a captured graph does without (codegen/runtime/implied_edges.h), against a search."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import ROOT

PROGRAM = """
#include <cstdio>
#include "implied_edges.h"
int main() {
  size_t count, from, to;
  std::vector<std::pair<size_t, size_t>> edges;
  if (std::scanf("%zu", &count) != 1) return 1;
  while (std::scanf("%zu %zu", &from, &to) == 2) edges.emplace_back(from, to);
  for (size_t i : convoy::ImpliedEdges(count, edges)) std::printf("%zu ", i);
}
"""
Edges = list[tuple[int, int]]


@pytest.fixture(scope="module")
def implied(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, Edges], set[int]]:
    folder = tmp_path_factory.mktemp("edges")
    (folder / "main.cc").write_text(PROGRAM)
    built = folder / "main"
    include = f"-I{ROOT / 'codegen/runtime'}"
    subprocess.run(["g++", "-std=c++17", include, folder / "main.cc", "-o", built], check=True)

    def run(count: int, edges: Edges) -> set[int]:
        text = "\n".join([str(count), *(f"{a} {b}" for a, b in edges)])
        done = subprocess.run([built], input=text, capture_output=True, text=True, check=True)
        return set(map(int, done.stdout.split()))

    return run


def reaches(edges: Edges, source: int, target: int) -> bool:
    seen, left = {source}, [source]
    while left:
        node = left.pop()
        left += [b for a, b in edges if a == node and b not in seen]
        seen.update(b for a, b in edges if a == node)
    return target in seen


@given(data=st.data())
def test_removed_are_just_the_edges_with_another_path(
    implied: Callable[[int, Edges], set[int]], data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, 9))
    names = data.draw(st.permutations(range(count)))  # nodes are in no order
    pairs = [(names[a], names[b]) for b in range(count) for a in range(b)]
    edges = data.draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    others = ([*edges[:i], *edges[i + 1 :]] for i in range(len(edges)))
    expected = {i for i, rest in enumerate(others) if reaches(rest, *edges[i])}
    assert implied(count, edges) == expected


def test_more_nodes_than_a_word_has_bits(implied: Callable[[int, Edges], set[int]]) -> None:
    chain = [(i, i + 1) for i in range(199)]
    assert implied(200, [*chain, (3, 130), (0, 199)]) == {199, 200}
