// A bounded queue from one thread to another that never locks and never allocates.

#ifndef INFERD_RESULT_QUEUE_HPP
#define INFERD_RESULT_QUEUE_HPP

#include <array>
#include <atomic>
#include <cstddef>
#include <type_traits>

namespace inferd {

/// Results that wait to be read. A reader of an audio callback looks every few
/// milliseconds and a model needs longer for each, so a few suffice; over that the newest
/// is left out and counted, because the slots that the reader may be in are not the
/// writer's to change.
inline constexpr std::size_t kMaxResults = 16;

/// Exactly one thread pushes and exactly one thread pops; neither waits for the other.
/// Both are wait-free: a fixed number of steps, no lock, no allocation, no system call.
template <class Result>
class ResultQueue {
  static_assert(std::is_trivially_copyable_v<Result>,
                "a result is copied between threads byte by byte: no std::string, no vector");
  static_assert(std::atomic<std::size_t>::is_always_lock_free, "this machine has no such atomics");

 public:
  /// False: it is full, and the result was left out.
  bool push(const Result& result) noexcept {
    const std::size_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == kMaxResults) {
      n_dropped_.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
    slots_[tail % kMaxResults] = result;
    tail_.store(tail + 1, std::memory_order_release);
    return true;
  }

  /// False: there is none now.
  bool pop(Result& result) noexcept {
    const std::size_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return false;
    result = slots_[head % kMaxResults];
    head_.store(head + 1, std::memory_order_release);
    return true;
  }

  /// How many were left out, because it was full; any thread may ask.
  std::size_t dropped() const noexcept { return n_dropped_.load(std::memory_order_relaxed); }

 private:
  // Each on a cache line of its own (64 bytes), so that neither thread slows the other.
  alignas(64) std::atomic<std::size_t> head_{0};
  alignas(64) std::atomic<std::size_t> tail_{0};
  alignas(64) std::atomic<std::size_t> n_dropped_{0};
  std::array<Result, kMaxResults> slots_{};
};

}  // namespace inferd

#endif
