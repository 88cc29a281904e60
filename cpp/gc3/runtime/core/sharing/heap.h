// Which parts of a job's shared file are in use. Any process of the job takes parts, and any process gives them back,
// so that the next request of about the same size gets them.
//
// The words that say so are in the file. A process can be killed between any two instructions, so there is no lock:
// free parts are on stacks, by size, and whoever is killed while it has a part loses that part alone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "gc3/runtime/core/sharing/shared_memory.h"
#include "gc3/runtime/core/sharing/window.h"

namespace gc3::core {

class Heap {
 public:
  static constexpr std::size_t kClasses = 132;  // of sizes: four for each power of two, up to the size of the file
  // In shared memory, at first zeros but for what the owner of the file uses of the first segment.
  struct Words {
    std::uint64_t used[Window::kSegments];  // the bytes of each segment that were ever taken
    std::uint64_t freed[kClasses];          // the first free part of each size: its page, and a number against reuse
  };

  // The bytes that a part takes up in the file: at most a quarter more than asked for.
  static std::uint64_t room_of(std::uint64_t bytes);

  void open(Words& words) { words_ = &words; }

  // A part that nobody uses, of zeros; memory need not exist for it. None: the file is used up, or this process cannot
  // map the part; then nothing is taken. `window`: that of this process.
  std::optional<Extent> take(Window& window, const SharedMemory& file, std::uint64_t bytes);
  // A part that is not used any more, and its address in this process. All but its first page goes back to the system.
  // Needs no descriptor, because memory may outlive the job.
  void give(std::uint8_t* at, Extent part);

 private:
  std::optional<std::uint64_t> pop(Window& window, const SharedMemory& file, std::size_t size_class);

  Words* words_ = nullptr;
};

}  // namespace gc3::core
