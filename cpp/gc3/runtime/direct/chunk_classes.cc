#include "gc3/runtime/direct/chunk_classes.h"

#include "gc3/base/errors/runtime.h"
#include "gc3/runtime/direct/machine.h"

namespace gc3::direct {
namespace {

// Moves the classes of chunks instead of their data.
class ClassMover final : public Mover {
 public:
  explicit ClassMover(const Decoded& program) : program_(program) {
    const model::Collective& collective = program.program.collective;
    for (std::uint32_t r = 0; r < collective.ranks(); ++r) {
      // Scratch twice: plain chunks, and packets.
      const std::uint32_t sizes[] = {collective.input_chunks(r), collective.output_chunks(r),
                                     2 * program.scratch_chunks[r]};
      for (const std::uint32_t size : sizes) classes_.emplace_back(size, kNone);
    }
  }

  Moved move(const Step& step, std::uint64_t, Position& at) override {
    for (; at.chunk < step.count; ++at.chunk) {
      std::uint32_t found = kNone;
      for (const Place& place : program_.sources(step)) {
        const std::uint32_t held = here(place, at.chunk);
        if (held == kNone && place.packet) return Moved::nothing;
        if (found != kNone && held != kNone && held != found) mixed_ = true;
        if (held != kNone) found = held;
      }
      for (const Place& place : program_.targets(step)) {
        if (found != kNone && place.buffer != Buffer::scratch && found != own(place, at.chunk)) mixed_ = true;
        here(place, at.chunk) = found == kNone && place.packet ? 0 : found;
      }
    }
    return Moved::all;
  }
  bool mixed() const { return mixed_; }

 private:
  // The class of the data there; kNone: there is none.
  std::uint32_t& here(const Place& place, std::uint32_t k) {
    std::uint32_t chunk = place.chunk + k;
    if (place.packet) chunk += program_.scratch_chunks[place.rank];
    std::uint32_t& held = classes_[3 * std::size_t{place.rank} + static_cast<std::size_t>(place.buffer)][chunk];
    if (held == kNone && place.buffer == Buffer::input) held = own(place, k);
    return held;
  }
  std::uint32_t own(const Place& place, std::uint32_t k) const {
    return (place.chunk + k) % program_.program.collective.chunks();
  }

  const Decoded& program_;
  std::vector<std::vector<std::uint32_t>> classes_;  // by rank and buffer
  bool mixed_ = false;
};

}  // namespace

Result<bool> moves_between_classes(const Decoded& program) {
  const Program& p = program.program;
  std::vector<interp::Counter> counters(Counters::bytes(p) / sizeof(interp::Counter));
  Machine machine(program, Counters(counters.data(), p), 0, p.collective.ranks());
  ClassMover mover(program);
  machine.begin(1, mover, {}, {});
  while (!machine.finished()) {
    if (machine.sweep([] {})) continue;
    Diagnostic stuck(ErrorCode::RuntimeDeadlock, "");
    machine.report(stuck);
    return stuck;
  }
  return mover.mixed();
}

}  // namespace gc3::direct
