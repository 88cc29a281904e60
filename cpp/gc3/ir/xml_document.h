// The content of an MSCCL XML file: every attribute read and in range, nothing interpreted yet.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"
#include "gc3/ir/xml_tokens.h"

namespace gc3::ir {

struct XmlStep {
  std::size_t offset = 0;  // of the tag in the text, for errors
  std::int32_t src_chunk = 0;
  std::int32_t dst_chunk = 0;
  std::int32_t count = 0;
  std::int32_t dep_tb = 0;  // negative: none
  std::int32_t dep_step = 0;
  Opcode opcode = Opcode::nop;
  model::Buffer src_buffer = model::Buffer::input;
  model::Buffer dst_buffer = model::Buffer::input;
  bool publishes = false;  // hasdep: other threadblocks can wait for its completion
};

struct XmlThreadblock {
  std::size_t offset = 0;
  std::uint32_t id = 0;
  std::uint32_t send_peer = kNoRank;
  std::uint32_t recv_peer = kNoRank;
  std::uint32_t channel = 0;
  std::uint32_t first_step = 0;
  std::uint32_t step_count = 0;
};

struct XmlGpu {
  std::size_t offset = 0;
  std::uint32_t id = 0;
  std::uint32_t input_chunks = 0;
  std::uint32_t output_chunks = 0;
  std::uint32_t scratch_chunks = 0;
  std::uint32_t first_tb = 0;
  std::uint32_t tb_count = 0;
};

struct XmlDocument {
  std::size_t offset = 0;  // of <algo>
  std::string name;
  model::Protocol protocol = model::Protocol::Simple;
  std::uint32_t channels = 0;
  std::uint32_t chunks_per_loop = 0;
  std::uint32_t ranks = 0;
  std::string collective;
  bool in_place = false;
  bool out_of_place = true;  // where the file gives none: the opposite of in_place
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = 0;  // as in the file: some runtimes use it for sizes up to it, others for sizes below it
  bool states_out_of_place = false;
  bool states_min_bytes = false;
  bool states_max_bytes = false;
  // Attributes that gc3 adds when a value differs from what other writers imply.
  std::optional<std::uint32_t> root;
  std::optional<std::uint32_t> slots;
  std::uint32_t instances = 1;
  std::uint32_t split = 1;

  std::vector<XmlGpu> gpus;                  // by id: 0..ranks-1
  std::vector<XmlThreadblock> threadblocks;  // of a gpu: by id, 0..tb_count-1
  std::vector<XmlStep> steps;
};

// `tokens` must stand before the first tag. It also places the errors of later stages.
Result<XmlDocument> parse_xml_document(XmlTokens& tokens);

}  // namespace gc3::ir
