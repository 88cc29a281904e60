// Memory of objects of which some dozens come and go: a thread keeps what it frees. The C library keeps seven at hand.
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace gc3::p2p {

// An allocator of single objects, for allocate_shared.
template <class T>
class Recycled {
 public:
  using value_type = T;
  Recycled() = default;
  template <class Other>
  Recycled(const Recycled<Other>&) {}  // NOLINT(*-explicit-*)
  bool operator==(const Recycled&) const = default;

  T* allocate(std::size_t) { return kept.count == 0 ? std::allocator<T>().allocate(1) : kept.free[--kept.count]; }
  void deallocate(T* object, std::size_t) {
    static thread_local const Keeping keeping;
    if (kept.count < kept.most) {
      kept.free[kept.count++] = object;
    } else {
      std::allocator<T>().deallocate(object, 1);
    }
  }

 private:
#if defined(__SANITIZE_ADDRESS__)
  static constexpr std::size_t kMost = 0;  // it finds what uses an object after its end
#else
  static constexpr std::size_t kMost = 128;
#endif
  struct Kept {
    std::array<T*, kMost> free = {};
    std::size_t count = 0;
    std::size_t most = 0;
  };
  // Ends with the thread, whose later objects may still free some.
  struct Keeping {
    Keeping() { kept.most = kMost; }
    ~Keeping() {
      kept.most = 0;
      while (kept.count != 0) std::allocator<T>().deallocate(kept.free[--kept.count], 1);
    }
  };
  static inline thread_local constinit Kept kept;
};

}  // namespace gc3::p2p
