// Threads of a CUDA block on the host: fibers that take turns, each until it has to wait for others.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace emulator {

enum class State { kReady, kAtBlockBarrier, kAtWarpBarrier, kDone };

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  State state;
  unsigned mask;  // lanes that meet at the warp's barrier
};

inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline size_t current;
inline std::function<void()> body;

inline void enter() {
  body();
  fibers[current].state = State::kDone;
  swapcontext(&fibers[current].context, &scheduler);
}

inline void wait_at(State barrier) {
  fibers[current].state = barrier;
  swapcontext(&fibers[current].context, &scheduler);
}

// Barriers of a block's threads, and of those lanes of a warp that `mask` names. Threads that have
// returned are not waited for.
inline void meet_block() { wait_at(State::kAtBlockBarrier); }
inline void meet_warp(unsigned mask = ~0u) {
  fibers[current].mask = mask;
  wait_at(State::kAtWarpBarrier);
}

inline bool release_warps() {
  bool released = false;
  for (size_t first = 0; first < fibers.size(); first += 32) {
    const size_t end = std::min(first + 32, fibers.size());
    unsigned missing = 0;
    for (size_t i = first; i < end; ++i) {
      const State state = fibers[i].state;
      if (state != State::kAtWarpBarrier && state != State::kDone) missing |= 1u << (i - first);
    }
    for (size_t i = first; i < end; ++i) {
      if (fibers[i].state != State::kAtWarpBarrier || fibers[i].mask & missing) continue;
      fibers[i].state = State::kReady;
      released = true;
    }
  }
  return released;
}

inline bool release_block() {
  bool released = false;
  for (const Fiber& fiber : fibers)
    if (fiber.state == State::kAtWarpBarrier) return false;
  for (Fiber& fiber : fibers) {
    if (fiber.state != State::kAtBlockBarrier) continue;
    fiber.state = State::kReady;
    released = true;
  }
  return released;
}

// Runs `body` in each of `threads` fibers to its end; `resume(i)` comes before each turn of fiber
// i, and `backwards` gives the last fiber the first turn. False where threads wait for others that
// wait elsewhere: on a GPU the block would hang.
template <class Resume>
bool run_block(size_t threads, const Resume& resume, bool backwards = false) {
  constexpr size_t kStack = 256 << 10;
  fibers.resize(threads);
  for (Fiber& fiber : fibers) {
    if (!fiber.stack) fiber.stack.reset(new char[kStack]);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
    fiber.state = State::kReady;
  }
  do {
    for (size_t turn = 0; turn < threads; ++turn) {
      current = backwards ? threads - 1 - turn : turn;
      if (fibers[current].state != State::kReady) continue;
      resume(current);
      swapcontext(&scheduler, &fibers[current].context);
    }
  } while (release_warps() || release_block());
  return std::all_of(fibers.begin(), fibers.end(),
                     [](const Fiber& fiber) { return fiber.state == State::kDone; });
}

}  // namespace emulator
