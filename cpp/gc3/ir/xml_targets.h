// The runtimes that read MSCCL XML, and their limits.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "gc3/base/result.h"

namespace gc3::ir {

struct XmlDocument;
class XmlTokens;

enum class XmlDialect : std::uint8_t { msccl, rccl };
inline constexpr std::array<std::string_view, 2> kXmlDialectNames = {"msccl", "rccl"};

struct XmlTarget {
  std::string_view name;
  std::string_view title;
  XmlDialect dialect;
  std::uint32_t steps;                     // per threadblock, with nops
  std::uint32_t threadblocks;              // per rank
  std::uint32_t threadblocks_per_channel;  // of a rank that send, and that receive
  std::uint32_t channels;
  bool fused;             // runs rcs, rrc, rrs and rrcs
  bool whole_buffer_use;  // requires i_chunks and o_chunks to be 0 or the number that nchunksperloop implies
};
inline constexpr std::array<XmlTarget, 3> kXmlTargets = {{
    {"msccl", "microsoft/msccl", XmlDialect::msccl, 256, 216, 32, 32, true, true},
    {"azure", "the Azure executor", XmlDialect::rccl, 64, 1024, 32, 32, true, false},
    {"rccl", "RCCL", XmlDialect::rccl, 64, 64, 32, 128, false, false},
}};
// Limits of all of them: they come from the XML parser and the structs they share.
inline constexpr std::uint32_t kXmlMaxCount = 71;
inline constexpr std::uint32_t kXmlMaxOffset = 32767;    // offsets are kept in 16 bits
inline constexpr std::uint32_t kXmlMaxDependency = 127;  // threadblock ids of dependencies are kept in 8 bits
inline constexpr std::uint32_t kXmlMaxNodes = 4095;      // 1 + ranks + threadblocks and steps of one rank
inline constexpr std::uint32_t kXmlMaxChildren = 1024;   // of one element
inline constexpr std::uint64_t kMscclMaxBytes = std::uint64_t{1} << 27U;  // of microsoft/msccl, where a file gives none
inline constexpr std::size_t kXmlMaxName = 255;                           // as in the file
inline constexpr std::uint64_t kXmlMaxBytes = (std::uint64_t{1} << 63U) - 1;

// nullptr if there is no target of that name.
const XmlTarget* find_xml_target(std::string_view name);

// The first reason why the target refuses the file or never uses it; `tokens` places the message.
Status check_loadable(const XmlDocument& doc, const XmlTokens& tokens, const XmlTarget& target);

}  // namespace gc3::ir
