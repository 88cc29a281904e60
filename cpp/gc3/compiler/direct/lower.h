// The direct lowering: a program of messages as one-sided moves between registered buffers.
//
// The rule: whoever keeps a value pulls it. A step that stores becomes one move of its rank that loads all terms of the
// value from where they are kept, in the order of the additions; a send, and a sum that is sent on and kept nowhere,
// becomes no move, nor does a copy into scratch that can be read where it comes from. So a chain recv_reduce_send ...
// recv_reduce_copy, or several reductions into one place, is one pass over all sources, and the result has the bits of
// the message form. Where a term would be overwritten before it could be pulled, in a circle of exchanges,
// its rank puts it aside in scratch.
//
// A value that a switch group of the program multicasts is stored by the rank that has it, through the switch, and what
// it adds up is loaded through it. Nothing says in which order, so that these sums may have other bits.
//
// Signals are then placed where the moves need an order that nothing else gives: see signals.h.
#pragma once

#include "gc3/base/result.h"
#include "gc3/ir/direct/program.h"
#include "gc3/ir/program.h"

namespace gc3::compiler::direct {

// `program`: proven. `pushing`: what is only moved is stored by the rank that has it; see join. The result is to be
// proven by verify::direct.
Result<ir::direct::Program> lower(const ir::Program& program, bool pushing = false);

// The same without signals: what a rank would load from another one, that one stores into its scratch as packets, whose
// flags say that they are there. Scratch has two halves, so that a call does not meet the one before; where some rank
// could be two calls ahead of another, the proof refuses it.
Result<ir::direct::Program> lower_to_packets(const ir::Program& program);

}  // namespace gc3::compiler::direct
