// The edges of an acyclic graph that paths over other edges imply.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace convoy {

// Positions in `edges`, pairs (from, to) of nodes 0 to count - 1, that the transitive reduction of
// the graph does without: another path leads from the one to the other. No edge may be there twice.
inline std::vector<size_t> ImpliedEdges(size_t count,
                                        const std::vector<std::pair<size_t, size_t>>& edges) {
  std::vector<std::vector<size_t>> into(count), out(count);
  std::vector<size_t> missing(count), ready;
  for (size_t i = 0; i < edges.size(); ++i) {
    into[edges[i].second].push_back(i);
    out[edges[i].first].push_back(edges[i].second);
    ++missing[edges[i].second];
  }
  for (size_t node = 0; node < count; ++node) {
    if (missing[node] == 0) ready.push_back(node);
  }
  // Of each node those before it, a bit each. Nodes are taken behind all of their predecessors.
  const size_t words = (count + 63) / 64;
  std::vector<std::vector<uint64_t>> before(count, std::vector<uint64_t>(words));
  std::vector<size_t> implied;
  while (!ready.empty()) {
    size_t node = ready.back();
    ready.pop_back();
    std::vector<uint64_t>& mine = before[node];
    for (size_t i : into[node]) {
      const std::vector<uint64_t>& theirs = before[edges[i].first];
      for (size_t word = 0; word < words; ++word) mine[word] |= theirs[word];
    }
    for (size_t i : into[node]) {
      size_t from = edges[i].first;
      if (mine[from / 64] >> from % 64 & 1) implied.push_back(i);
    }
    for (size_t i : into[node]) mine[edges[i].first / 64] |= uint64_t{1} << edges[i].first % 64;
    for (size_t follower : out[node]) {
      if (--missing[follower] == 0) ready.push_back(follower);
    }
  }
  return implied;
}

}  // namespace convoy
