// The prepared calls of one function in one thread, found by their pointers and stream.
#pragma once

#include <cstring>
#include <memory>
#include <utility>

#include "executable.h"

namespace convoy {

struct CallKey {
  Pointers pointers{};
  cuda::Stream stream = nullptr;
  uint64_t capture_id = 0;
  uint64_t device = 0;

  uint64_t Hash() const {
    uint64_t words[sizeof(CallKey) / 8];
    std::memcpy(words, this, sizeof(words));
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (uint64_t word : words) {
      hash = (hash ^ word) * 0xbf58476d1ce4e5b9u;
      hash ^= hash >> 29;
    }
    return hash;
  }
  bool operator==(const CallKey& other) const {
    return std::memcmp(this, &other, sizeof(CallKey)) == 0;
  }
};
static_assert(sizeof(CallKey) == 8 * (kMaxOperands + 3), "hashed and compared as plain bytes");

// Bounded: one function is called at few places, each with the same pointers every time; a caller
// with ever new pointers overwrites the oldest entry. Looking up walks an array of hashes.
class CallCache {
 public:
  static constexpr int kCapacity = 64;

  Prepared* Find(uint64_t hash, const CallKey& key) const {
    for (int i = 0; i < size_; ++i) {
      if (hashes_[i] == hash && entries_[i].key == key) return entries_[i].call.get();
    }
    return nullptr;
  }

  Prepared* Insert(uint64_t hash, const CallKey& key, std::unique_ptr<Prepared> call) {
    int i = size_ < kCapacity ? size_++ : next_;
    next_ = (i + 1) % kCapacity;
    hashes_[i] = hash;
    entries_[i] = {key, std::move(call)};
    return entries_[i].call.get();
  }

  void Clear() {
    for (int i = 0; i < size_; ++i) entries_[i].call.reset();
    size_ = next_ = 0;
  }

  int size() const { return size_; }

 private:
  struct Entry {
    CallKey key;
    std::unique_ptr<Prepared> call;
  };
  int size_ = 0, next_ = 0;
  uint64_t hashes_[kCapacity];
  Entry entries_[kCapacity];
};

}  // namespace convoy
