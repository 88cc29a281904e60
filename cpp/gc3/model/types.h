// The small enumerations of the model: data types, reductions, protocols, buffers, each with its spelling.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

namespace gc3::model {

// The float8 types are those of OCP and ml_dtypes: e4m3fn has no infinity, and its largest number is 448.
enum class DataType : std::uint8_t {
#define GC3_DATA_TYPE(id, name, bytes, kind, part) id,
#include "gc3/model/types.def"
};
enum class Kind : std::uint8_t { Through, Real, Signed, Unsigned, Boolean, Complex };
inline constexpr std::array<std::string_view, 6> kKindNames = {"float",    "float",   "signed",
                                                               "unsigned", "boolean", "complex"};
struct DataTypeInfo {
  std::string_view name;
  std::uint8_t bytes;
  Kind kind;
};
inline constexpr auto kDataTypes = std::to_array<DataTypeInfo>({
#define GC3_DATA_TYPE(id, name, bytes, kind, part) {#name, bytes, Kind::kind},
#include "gc3/model/types.def"
});
constexpr const DataTypeInfo& info(DataType type) { return kDataTypes[static_cast<std::size_t>(type)]; }
inline constexpr std::size_t kMostElemBytes = std::ranges::max(kDataTypes, {}, &DataTypeInfo::bytes).bytes;

enum class ReduceOp : std::uint8_t {
#define GC3_REDUCE_OP(name, fold, floats, integers, booleans, complexes, doc) name,
#include "gc3/model/types.def"
};
struct ReduceOpInfo {
  std::string_view name;
  bool floats;
  bool integers;
  bool booleans;
  bool complexes;
  std::string_view doc;

  constexpr bool takes(Kind kind) const {
    switch (kind) {
      case Kind::Through:
      case Kind::Real:
        return floats;
      case Kind::Signed:
      case Kind::Unsigned:
        return integers;
      case Kind::Boolean:
        return booleans;
      case Kind::Complex:
        return complexes;
    }
    return false;
  }
};
inline constexpr auto kReduceOps = std::to_array<ReduceOpInfo>({
#define GC3_REDUCE_OP(name, fold, floats, integers, booleans, complexes, doc) \
  {#name, floats, integers, booleans, complexes, doc},
#include "gc3/model/types.def"
});
constexpr const ReduceOpInfo& info(ReduceOp op) { return kReduceOps[static_cast<std::size_t>(op)]; }

// What premulsum multiplies the input of a rank by: an element of the call's type.
struct Factor {
  std::array<std::byte, kMostElemBytes> element = {};
  std::optional<DataType> type = {};  // none: no factor is given

  static Factor of(const void* element, DataType type) {
    Factor made;
    std::memcpy(made.element.data(), element, info(type).bytes);
    made.type = type;
    return made;
  }
  bool operator==(const Factor&) const = default;
};

// How messages get from rank to rank. With the first three, the sender's threadblock stores them in one of three
// formats. With Pull, the receiver's threadblock loads what lies with the sender; with Copy, copy engines move whole
// messages. Both have the format of Simple.
enum class Protocol : std::uint8_t { Simple, LL, LL128, Pull, Copy };
inline constexpr std::array<std::string_view, 5> kProtocolNames = {"Simple", "LL", "LL128", "Pull", "Copy"};
inline constexpr std::size_t kFormats = 3;
constexpr Protocol format_of(Protocol p) { return static_cast<std::size_t>(p) < kFormats ? p : Protocol::Simple; }

enum class Buffer : std::uint8_t { input, output, scratch };
inline constexpr std::array<std::string_view, 3> kBufferNames = {"input", "output", "scratch"};

constexpr std::size_t size_of(DataType type) { return info(type).bytes; }
constexpr std::string_view name_of(DataType type) { return info(type).name; }
constexpr std::string_view name_of(ReduceOp op) { return info(op).name; }
constexpr std::string_view name_of(Kind kind) { return kKindNames[static_cast<std::size_t>(kind)]; }
constexpr std::string_view name_of(Protocol p) { return kProtocolNames[static_cast<std::size_t>(p)]; }
constexpr std::string_view name_of(Buffer b) { return kBufferNames[static_cast<std::size_t>(b)]; }

// The value spelled `name`, if there is one: parse<Protocol>("LL").
template <class Enum, std::size_t N>
constexpr std::optional<Enum> parse_name(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}
template <class Enum, class Table>
constexpr std::optional<Enum> parse_row(const Table& table, std::string_view name) {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (table[i].name == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}
inline std::optional<DataType> parse_data_type(std::string_view s) { return parse_row<DataType>(kDataTypes, s); }
inline std::optional<ReduceOp> parse_reduce_op(std::string_view s) { return parse_row<ReduceOp>(kReduceOps, s); }
inline std::optional<Protocol> parse_protocol(std::string_view s) { return parse_name<Protocol>(kProtocolNames, s); }

}  // namespace gc3::model
