#include "judge.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/ir/forms.h"
#include "gc3/ir/image.h"
#include "gc3/ir/test_seal.h"
#include "gc3/ir/text.h"
#include "gc3/ir/xml_write.h"
#include "gc3/verify/classes.h"

namespace gc3::fuzz {
namespace {

using Bytes = std::vector<std::byte>;

// A larger program takes the verifier long; that is not what is tested here.
constexpr std::uint64_t kMostChunks = 1U << 12U;

void demand(bool holds, const char* what, const Diagnostic* problem = nullptr) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s%s%s\n", what, problem ? ": " : "", problem ? problem->str().c_str() : "");
  std::abort();
}

template <class T>
T must(Result<T> result, const char* what) {
  demand(result.ok(), what, result.ok() ? nullptr : &result.error());
  return std::move(result).value();
}

std::uint64_t chunks(const ir::Program& p) {
  std::uint64_t sum = 0;
  for (std::uint32_t r = 0; r < p.ranks.size(); ++r) {
    sum += p.ranks[r].scratch_chunks + p.collective.input_chunks(r) + p.collective.output_chunks(r);
  }
  return sum;
}

// The program without switch groups, and with signals exactly at the steps for which others wait, as readers of XML set
// them.
ir::Program tidied(ir::Program p) {
  p.switched.clear();  // XML has no switch groups
  for (ir::Instruction& i : p.instructions) i.has_dependents = 0;
  for (std::uint32_t r = 0; r < p.ranks.size(); ++r) {
    for (const ir::Threadblock& tb : p.tbs(r)) {
      for (const ir::Instruction& i : p.steps(tb)) {
        for (const ir::Dependency& d : p.deps(i)) {
          p.instructions[p.tbs(r)[d.tb].first_instruction + d.step].has_dependents = 1;
        }
      }
    }
  }
  return p;
}

// `in_xml`: the program was read from XML, so it can be written as XML. Of other programs only proven ones certainly
// can: an image may name ranks that do not exist, which XML readers refuse.
void check_program(const ir::Program& p, bool in_xml) {
  demand(must(ir::read_image(ir::write_image(p)), "an image that was written is read") == p,
         "an image keeps a program");
  demand(must(ir::parse_text(ir::to_text(p)), "a text that was printed is read") == p, "a text keeps a program");
  const bool proven = chunks(p) <= kMostChunks && verify::verify(p).ok();
  const bool has_nops = std::any_of(p.instructions.begin(), p.instructions.end(),
                                    [](const ir::Instruction& i) { return i.opcode == ir::Opcode::nop; });
  for (const auto dialect : {ir::XmlDialect::msccl, ir::XmlDialect::rccl}) {
    ir::XmlWriteOptions options;
    options.dialect = dialect;
    const auto xml = ir::write_xml(p, options);
    if (!xml.ok()) continue;
    const auto again = ir::read_xml(xml.value(), "<written>", {p.collective, "", std::nullopt});
    if (!in_xml && (!proven || has_nops)) continue;
    demand(again.ok(), "XML that was written is read", again.ok() ? nullptr : &again.error());
    demand(again.value().program == tidied(p), "XML keeps a program");
  }
}

// A program of which one rank stands for all: what is proven on it holds for all.
void check_classes(const ir::ClassProgram& p) {
  const Bytes image = ir::write_image(p, false);
  demand(ir::write_image(must(ir::read_classes(image), "an image of one rank is read"), false) == image,
         "an image keeps the rank that stands for all");
  demand(ir::write_image(must(ir::parse_classes(ir::to_text(p)), "a text of one rank is read"), false) == image,
         "a text keeps the rank that stands for all");
  if (chunks(p.representative) > kMostChunks || !verify::verify_representative(p).ok()) return;
  const auto whole = ir::expand(p);
  if (!whole.ok() || chunks(whole.value()) > kMostChunks) return;
  demand(verify::verify(whole.value()).ok(), "what is proven on one rank holds for all");
}

// Each runtime refuses the text, or the program that it executes can be verified.
void check_runtimes(std::string_view text) {
  for (const ir::XmlTarget& target : ir::kXmlTargets) {
    ir::XmlReadOptions options;
    options.runtime = &target;
    const auto file = ir::read_xml(text, "<input>", options);
    demand(file.ok() || !file.error().message.empty(), "a refusal has a message");
    if (!file.ok() || chunks(file.value().program) > kMostChunks) continue;
    verify::Options how;
    how.chunk_per_slot = true;
    verify::verify(file.value().program, how);
  }
}

}  // namespace

void judge(std::span<const std::byte> bytes) {
  const auto file = ir::read_any(bytes, "<input>");
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const bool is_xml =
      text.substr(std::min(text.find_first_not_of(" \t\r\n\xef\xbb\xbf"), text.size())).starts_with('<');
  if (is_xml) check_runtimes(text);
  const Bytes mended_bytes = ir::testing::sealed({bytes.begin(), bytes.end()});
  for (const std::span<const std::byte> input : {bytes, std::span<const std::byte>(mended_bytes)}) {
    const auto kept = ir::read_any(input, "<input>", {.keep_classes = true});
    if (kept.ok() && kept.value().classes) check_classes(*kept.value().classes);
  }
  if (file.ok()) return check_program(file.value().program, is_xml);
  demand(!file.error().message.empty(), "an error has a message");
  // With a wrong checksum the rest of the image would never be read.
  const auto mended = ir::read_image(mended_bytes);
  if (mended.ok()) check_program(mended.value(), false);
}

}  // namespace gc3::fuzz
