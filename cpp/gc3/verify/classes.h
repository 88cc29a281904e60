// The proof of a program of which one rank stands for all, on that rank: see classes.cc for why this is enough.
#pragma once

#include "gc3/ir/classes.h"
#include "gc3/verify/verify.h"

namespace gc3::verify {

// As `verify` of the program of all ranks, of what a reader returned; at the cost of one rank if it stands for all and
// is right.
Report verify(const ir::ClassProgram& program, const Options& options = {});

// On the representative alone. A program with findings may be right all the same: this does not follow the order that
// messages through other ranks impose on a rank, nor add up sums of an irregular set of ranks.
Report verify_representative(const ir::ClassProgram& program, const Options& options = {});

}  // namespace gc3::verify
