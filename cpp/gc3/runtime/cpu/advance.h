// The functions that advance a task on a Block of the CPU, by protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "gc3/model/types.h"
#include "gc3/runtime/interp/interpreter.h"

namespace gc3::cpu {

// `R`: the kind of run, see interp/v_run.h.
template <class Base, class R = interp::Run>
using Advance = interp::Outcome (*)(Base&, const R&, interp::Task&, std::uint32_t);

// interp::advance for a Block known by its base class.
template <class Protocol, class Block, class Base, class R>
interp::Outcome advance_as(Base& block, const R& run, interp::Task& task, std::uint32_t budget) {
  return interp::advance<Protocol>(static_cast<Block&>(block), run, task, budget);
}

// For a Block with its own Simple protocol, ForSimple.
template <class Block, class ForSimple = interp::Simple, class Base = Block, class R = interp::Run>
Advance<Base, R> advance_for(model::Protocol protocol) {
  constexpr Advance<Base, R> kTable[] = {advance_as<ForSimple, Block, Base, R>, advance_as<interp::LL, Block, Base, R>,
                                         advance_as<interp::LL128, Block, Base, R>};
  static_assert(std::size(kTable) == model::kFormats);
  return kTable[static_cast<std::size_t>(protocol)];
}

}  // namespace gc3::cpu
