#include "gc3/ir/xml_document.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <utility>

#include "gc3/base/interrupt.h"
#include "gc3/base/text.h"

namespace gc3::ir {
namespace {

// The attributes of an element, the required ones first, in the order that writers of the format use.
template <std::size_t N>
struct Schema {
  std::string_view element;
  std::array<std::string_view, N> names;
  std::size_t required;
};

enum AlgoAttribute : std::size_t {
  kName,
  kProto,
  kChannels,
  kChunksPerLoop,
  kRanks,
  kCollective,
  kInPlace,  // required
  kOutOfPlace,
  kMinBytes,
  kMaxBytes,
  kRoot,
  kSlots,
  kInstances,
  kSplit
};
constexpr Schema<14> kAlgo = {"algo",
                              {"name", "proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace", "outofplace",
                               "minBytes", "maxBytes", "root", "slots", "instances", "split"},
                              7};
enum GpuAttribute : std::size_t { kGpuId, kInputChunks, kOutputChunks, kScratchChunks };
constexpr Schema<4> kGpu = {"gpu", {"id", "i_chunks", "o_chunks", "s_chunks"}, 4};
enum TbAttribute : std::size_t { kTbId, kSend, kRecv, kChannel };
constexpr Schema<4> kTb = {"tb", {"id", "send", "recv", "chan"}, 4};
enum StepAttribute : std::size_t {
  kStep,
  kType,
  kSrcBuffer,
  kSrcOffset,
  kDstBuffer,
  kDstOffset,
  kCount,
  kDepTb,
  kDepStep,
  kHasDep
};
constexpr Schema<10> kStepSchema = {
    "step", {"s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"}, 10};

// The values of an element's attributes, by the index of their name in the schema.
template <std::size_t N>
class Values {
 public:
  Values(const XmlTokens& tokens, const Schema<N>& schema) : tokens_(tokens), schema_(schema) {}

  // Skips attributes that the format does not know, as the runtimes do.
  Status bind() {
    std::size_t guess = 0;  // writers keep the order, so the next name nearly always follows the last one
    for (const XmlAttribute& attribute : tokens_.attributes()) {
      if (guess >= N || schema_.names[guess] != attribute.name) {
        const auto found = std::find(schema_.names.begin(), schema_.names.end(), attribute.name);
        if (found == schema_.names.end()) continue;
        guess = static_cast<std::size_t>(found - schema_.names.begin());
      }
      if (has(guess)) return error("attribute " + in_quotes(attribute.name) + " is given twice");
      values_[guess++] = attribute.value;
    }
    for (std::size_t i = 0; i < schema_.required; ++i) {
      if (!has(i)) return error("<" + std::string(schema_.element) + "> lacks " + in_quotes(schema_.names[i]));
    }
    return {};
  }

  bool has(std::size_t i) const { return values_[i].data() != nullptr; }
  std::string_view text(std::size_t i) const { return values_[i]; }

  // Integers in C's notation, as strtol reads them: 12, 0x0c, 014.
  template <class T>
  Status number(std::size_t i, T& out, std::int64_t low = 0,
                std::int64_t high = std::numeric_limits<std::int32_t>::max()) const {
    std::int64_t value = 0;
    if (!parse_integer(values_[i], value)) return bad(i, "a whole number");
    if (value < low || value > high) {
      return bad(i, "a number from " + std::to_string(low) + " to " + std::to_string(high));
    }
    out = static_cast<T>(value);
    return {};
  }
  Status flag(std::size_t i, bool& out) const { return number(i, out, 0, 1); }

  Diagnostic bad(std::size_t i, const std::string& expected) const {
    return error(std::string(schema_.names[i]) + "=" + in_quotes(values_[i]) + " where " + expected + " is expected");
  }
  Diagnostic error(std::string text) const { return tokens_.error_at(tokens_.offset(), std::move(text)); }

 private:
  static bool parse_integer(std::string_view text, std::int64_t& value) {
    const bool negative = text.starts_with('-');
    if (negative) text.remove_prefix(1);
    int base = 10;
    if (text.starts_with("0x") || text.starts_with("0X")) {
      base = 16;
      text.remove_prefix(2);
    } else if (text.size() > 1 && text[0] == '0') {
      base = 8;
    }
    if (text.starts_with('-')) return false;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size()) return false;
    if (negative) value = -value;
    return true;
  }

  const XmlTokens& tokens_;
  const Schema<N>& schema_;
  std::array<std::string_view, N> values_;
};

class XmlParser {
 public:
  explicit XmlParser(XmlTokens& tokens) : tokens_(tokens) {}

  Result<XmlDocument> parse() {
    for (;;) {
      switch (tokens_.next()) {
        case XmlToken::open:
          GC3_CHECK(open());
          break;
        case XmlToken::close:
          break;
        case XmlToken::error:
          return tokens_.problem();
        case XmlToken::end:
          GC3_CHECK(finish());
          return std::move(doc_);
      }
    }
  }

 private:
  // Skips elements that the format does not know, with their content.
  Status open() {
    const std::string_view name = tokens_.name();
    const std::size_t depth = tokens_.depth();
    if (depth == 1) {
      if (name != "algo") return here("expected <algo>, found element " + in_quotes(name));
      known_depth_ = 1;
      return algo();
    }
    if (known_depth_ >= depth) known_depth_ = depth - 1;
    if (known_depth_ != depth - 1) return {};
    if ((depth == 2 && name == "gpu") || (depth == 3 && name == "tb") || (depth == 4 && name == "step")) {
      known_depth_ = depth;
      return depth == 2 ? gpu() : depth == 3 ? threadblock() : step();
    }
    if (name == "gpu" || name == "tb" || name == "step") return here(in_quotes(name) + " in the wrong place");
    return {};
  }

  Status algo() {
    Values<14> v(tokens_, kAlgo);
    GC3_CHECK(v.bind());
    doc_.offset = tokens_.offset();
    GC3_CHECK(text_of(v, kName, doc_.name));
    GC3_CHECK(text_of(v, kCollective, doc_.collective));
    const auto protocol = model::parse_protocol(v.text(kProto));
    if (!protocol.has_value() || *protocol != model::format_of(*protocol)) return v.bad(kProto, "Simple, LL or LL128");
    doc_.protocol = *protocol;
    GC3_CHECK(v.number(kChannels, doc_.channels, 0));
    GC3_CHECK(v.number(kChunksPerLoop, doc_.chunks_per_loop, 1));
    GC3_CHECK(v.number(kRanks, doc_.ranks, 1));
    GC3_CHECK(v.flag(kInPlace, doc_.in_place));
    doc_.out_of_place = !doc_.in_place;
    if (v.has(kOutOfPlace)) GC3_CHECK(v.flag(kOutOfPlace, doc_.out_of_place));
    if (!doc_.in_place && !doc_.out_of_place) return v.error("inplace and outofplace are both 0");
    constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
    doc_.states_out_of_place = v.has(kOutOfPlace);
    doc_.states_min_bytes = v.has(kMinBytes);
    doc_.states_max_bytes = v.has(kMaxBytes);
    if (v.has(kMinBytes)) GC3_CHECK(v.number(kMinBytes, doc_.min_bytes, 0, kMost));
    if (v.has(kMaxBytes)) GC3_CHECK(v.number(kMaxBytes, doc_.max_bytes, 0, kMost));
    if (v.has(kRoot)) GC3_CHECK(v.number(kRoot, doc_.root.emplace(), 0, std::int64_t{doc_.ranks} - 1));
    // gc3's own attributes allow everything that a program may hold.
    constexpr std::int64_t kAny = std::numeric_limits<std::uint32_t>::max();
    if (v.has(kSlots)) GC3_CHECK(v.number(kSlots, doc_.slots.emplace(), 0, kAny));
    if (v.has(kInstances)) GC3_CHECK(v.number(kInstances, doc_.instances, 0, kAny));
    if (v.has(kSplit)) GC3_CHECK(v.number(kSplit, doc_.split, 1));
    return {};
  }

  static Status text_of(const Values<14>& v, std::size_t i, std::string& out) {
    Result<std::string> resolved = resolve_references(v.text(i));
    if (!resolved.ok()) return v.error(resolved.error().message);
    if (!is_utf8(resolved.value())) return v.bad(i, "text in UTF-8");
    out = std::move(resolved).value();
    return {};
  }

  Status gpu() {
    Values<4> v(tokens_, kGpu);
    GC3_CHECK(v.bind());
    XmlGpu gpu;
    gpu.offset = tokens_.offset();
    gpu.first_tb = static_cast<std::uint32_t>(doc_.threadblocks.size());
    GC3_CHECK(v.number(kGpuId, gpu.id, 0, std::int64_t{doc_.ranks} - 1));
    GC3_CHECK(v.number(kInputChunks, gpu.input_chunks));
    GC3_CHECK(v.number(kOutputChunks, gpu.output_chunks));
    GC3_CHECK(v.number(kScratchChunks, gpu.scratch_chunks));
    scratch_total_ += gpu.scratch_chunks;
    if (scratch_total_ > kMaxScratchChunks) return v.error("more scratch chunks than a program may have");
    doc_.gpus.push_back(gpu);
    return {};
  }

  Status threadblock() {
    Values<4> v(tokens_, kTb);
    GC3_CHECK(v.bind());
    XmlThreadblock tb;
    tb.offset = tokens_.offset();
    tb.first_step = static_cast<std::uint32_t>(doc_.steps.size());
    GC3_CHECK(v.number(kTbId, tb.id));
    GC3_CHECK(peer(v, kSend, tb.send_peer));
    GC3_CHECK(peer(v, kRecv, tb.recv_peer));
    GC3_CHECK(v.number(kChannel, tb.channel, 0, std::max<std::int64_t>(doc_.channels, 1) - 1));
    doc_.threadblocks.push_back(tb);
    ++doc_.gpus.back().tb_count;
    return {};
  }

  Status peer(const Values<4>& v, std::size_t i, std::uint32_t& out) const {
    std::int32_t rank = -1;
    GC3_CHECK(v.number(i, rank, -1, std::int64_t{doc_.ranks} - 1));
    if (rank >= 0 && static_cast<std::uint32_t>(rank) == doc_.gpus.back().id) return v.bad(i, "another rank");
    out = rank < 0 ? kNoRank : static_cast<std::uint32_t>(rank);
    return {};
  }

  Status step() {
    breathe_();
    Values<10> v(tokens_, kStepSchema);
    GC3_CHECK(v.bind());
    XmlStep step;
    step.offset = tokens_.offset();
    constexpr auto kLeast = std::numeric_limits<std::int32_t>::min();
    XmlThreadblock& tb = doc_.threadblocks.back();
    std::uint32_t index = 0;
    GC3_CHECK(v.number(kStep, index));
    if (index != tb.step_count) return v.bad(kStep, "step " + std::to_string(tb.step_count));
    GC3_CHECK(opcode(v, step.opcode));
    GC3_CHECK(buffer(v, kSrcBuffer, step.src_buffer));
    GC3_CHECK(v.number(kSrcOffset, step.src_chunk, kLeast));
    GC3_CHECK(buffer(v, kDstBuffer, step.dst_buffer));
    GC3_CHECK(v.number(kDstOffset, step.dst_chunk, kLeast));
    GC3_CHECK(v.number(kCount, step.count, step.opcode == Opcode::nop ? 0 : 1));
    GC3_CHECK(v.number(kDepTb, step.dep_tb, -1));
    GC3_CHECK(v.number(kDepStep, step.dep_step, -1));
    GC3_CHECK(v.flag(kHasDep, step.publishes));
    doc_.steps.push_back(step);
    ++tb.step_count;
    return {};
  }

  static Status opcode(const Values<10>& v, Opcode& out) {
    std::string known = "one of";
    for (std::size_t i = 0; i < kOpcodeCount; ++i) {
      if (static_cast<Opcode>(i) == Opcode::apply) continue;  // XML has no operands for it
      if (kOpcodes[i].xml == v.text(kType)) {
        out = static_cast<Opcode>(i);
        return {};
      }
      known += " " + std::string(kOpcodes[i].xml);
    }
    return v.bad(kType, known);
  }

  static Status buffer(const Values<10>& v, std::size_t i, model::Buffer& out) {
    const std::string_view name = v.text(i);
    if (name == "i") {
      out = model::Buffer::input;
    } else if (name == "o") {
      out = model::Buffer::output;
    } else if (name == "s") {
      out = model::Buffer::scratch;
    } else {
      return v.bad(i, "i, o or s");
    }
    return {};
  }

  // Puts ranks and threadblocks in the order of their ids, which must be 0, 1, 2, ...
  Status finish() {
    const auto by_id = [](const auto& a, const auto& b) { return a.id < b.id; };
    std::stable_sort(doc_.gpus.begin(), doc_.gpus.end(), by_id);
    for (std::size_t r = 0; r < doc_.gpus.size(); ++r) {
      XmlGpu& gpu = doc_.gpus[r];
      GC3_CHECK(check_id("gpu", gpu.id, r, gpu.offset));
      const auto first = doc_.threadblocks.begin() + gpu.first_tb;
      std::stable_sort(first, first + gpu.tb_count, by_id);
      for (std::uint32_t t = 0; t < gpu.tb_count; ++t) GC3_CHECK(check_id("tb", first[t].id, t, first[t].offset));
    }
    if (doc_.gpus.size() != doc_.ranks) {
      return tokens_.error_at(doc_.offset, "ngpus is " + std::to_string(doc_.ranks) + ", the file describes " +
                                               std::to_string(doc_.gpus.size()));
    }
    return {};
  }

  Status check_id(std::string_view what, std::uint32_t id, std::size_t due, std::size_t offset) const {
    if (id == due) return {};
    const std::string name = std::string(what) + " " + std::to_string(id < due ? id : due);
    return tokens_.error_at(offset, name + (id < due ? " is described twice" : " is missing"));
  }

  Diagnostic here(std::string text) const { return tokens_.error_at(tokens_.offset(), std::move(text)); }

  XmlTokens& tokens_;
  Breath breathe_;
  XmlDocument doc_;
  std::uint64_t scratch_total_ = 0;
  std::size_t known_depth_ = 0;  // depth of the innermost open element that the format knows
};

}  // namespace

Result<XmlDocument> parse_xml_document(XmlTokens& tokens) { return XmlParser(tokens).parse(); }

}  // namespace gc3::ir
