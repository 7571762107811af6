// Threads of a CUDA block on the host: fibers that take turns, each until it waits.
#pragma once

#include <ucontext.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

namespace emulator {

struct Fiber {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool done = false;
};

inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline size_t current;
inline std::function<void()> body;

inline void enter() {
  body();
  fibers[current].done = true;
  swapcontext(&fibers[current].context, &scheduler);
}

inline void wait() { swapcontext(&fibers[current].context, &scheduler); }

// Runs `body` in each of `threads` fibers to its end; `resume(i)` comes before each turn of fiber i.
template <class Resume>
void run_block(size_t threads, const Resume& resume) {
  constexpr size_t kStack = 256 << 10;
  fibers.resize(threads);
  for (Fiber& fiber : fibers) {
    if (!fiber.stack) fiber.stack.reset(new char[kStack]);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStack;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, enter, 0);
    fiber.done = false;
  }
  for (size_t left = threads; left > 0;) {
    for (current = 0; current < threads; ++current) {
      if (fibers[current].done) continue;
      resume(current);
      swapcontext(&scheduler, &fibers[current].context);
      left -= fibers[current].done;
    }
  }
}

}  // namespace emulator
