// Which chunk of which block every step moves: from this, calls of the v-forms know the length of each message on both
// sides before anything is sent.
//
// A chunk belongs to a block (model/collective.h). Moving it changes nothing about that, and a sum belongs to the block
// of its terms, which must be the same. So one symbolic run, for any counts, determines the block of every chunk that a
// step reads, writes, sends or receives. In a program without races all schedules give the same result.
#pragma once

#include <cstdint>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/connections.h"

namespace gc3::ir {

struct Blocks {
  std::vector<std::uint32_t> first;   // per instruction: where its chunks begin in `pieces`
  std::vector<std::uint32_t> pieces;  // per chunk of an instruction: its count's number * chunks per block + index
};

// The piece that a chunk of a buffer holds before the program runs (input) or after it (output).
std::uint32_t piece_of(const model::Collective& collective, std::uint32_t rank, model::Place place);

// GC3-V012 where some chunk belongs to no single block. `connections`: complete. Where a collective has no v-form, all
// blocks have one count; a custom collective has no blocks, but its tensors have lengths.
Result<Blocks> trace_blocks(const ProgramIndex& index, const Connections& connections);
// The same, for a program from anywhere.
Result<Blocks> trace_blocks(const Program& program);
Result<Blocks> trace_blocks(const ClassProgram& read);
// The same, of a program whose collective must have a v-form.
Result<Blocks> trace_v_form(const Program& program);

}  // namespace gc3::ir
