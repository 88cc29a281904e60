// The functions that advance a task on a Block of the CPU, by protocol.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>

#include "gc3/model/types.h"
#include "gc3/runtime/interp/interpreter.h"

namespace gc3::cpu {

template <class Base>
using Advance = interp::Outcome (*)(Base&, const interp::Run&, interp::Task&, std::uint32_t);

// interp::advance for a Block known by its base class.
template <class Protocol, class Block, class Base>
interp::Outcome advance_as(Base& block, const interp::Run& run, interp::Task& task, std::uint32_t budget) {
  return interp::advance<Protocol>(static_cast<Block&>(block), run, task, budget);
}

// For a Block with its own Simple protocol, ForSimple.
template <class Block, class ForSimple = interp::Simple, class Base = Block>
Advance<Base> advance_for(model::Protocol protocol) {
  constexpr Advance<Base> kTable[] = {advance_as<ForSimple, Block, Base>, advance_as<interp::LL, Block, Base>,
                                      advance_as<interp::LL128, Block, Base>};
  static_assert(std::size(kTable) == model::kProtocolNames.size());
  return kTable[static_cast<std::size_t>(protocol)];
}

}  // namespace gc3::cpu
