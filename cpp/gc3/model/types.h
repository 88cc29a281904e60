// The small enumerations of the model: data types, reductions, protocols, buffers. Each with its spelling.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gc3::model {

// The float8 types are those of OCP and ml_dtypes: e4m3fn has no infinity, and its largest number is 448.
enum class DataType : std::uint8_t {
  float16,
  bfloat16,
  float32,
  float64,
  int8,
  uint8,
  int32,
  int64,
  uint64,
  float8_e4m3fn,
  float8_e5m2
};
inline constexpr std::array<std::string_view, 11> kDataTypeNames = {"float16", "bfloat16",      "float32",    "float64",
                                                                    "int8",    "uint8",         "int32",      "int64",
                                                                    "uint64",  "float8_e4m3fn", "float8_e5m2"};
inline constexpr std::array<std::uint8_t, 11> kDataTypeSizes = {2, 2, 4, 8, 1, 1, 4, 8, 8, 1, 1};

enum class ReduceOp : std::uint8_t { sum, prod, min, max, avg };
inline constexpr std::array<std::string_view, 5> kReduceOpNames = {"sum", "prod", "min", "max", "avg"};

enum class Protocol : std::uint8_t { Simple, LL, LL128 };
inline constexpr std::array<std::string_view, 3> kProtocolNames = {"Simple", "LL", "LL128"};

enum class Buffer : std::uint8_t { input, output, scratch };
inline constexpr std::array<std::string_view, 3> kBufferNames = {"input", "output", "scratch"};

constexpr std::size_t size_of(DataType type) { return kDataTypeSizes[static_cast<std::size_t>(type)]; }
constexpr std::string_view name_of(DataType type) { return kDataTypeNames[static_cast<std::size_t>(type)]; }
constexpr std::string_view name_of(ReduceOp op) { return kReduceOpNames[static_cast<std::size_t>(op)]; }
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
inline std::optional<DataType> parse_data_type(std::string_view s) { return parse_name<DataType>(kDataTypeNames, s); }
inline std::optional<ReduceOp> parse_reduce_op(std::string_view s) { return parse_name<ReduceOp>(kReduceOpNames, s); }
inline std::optional<Protocol> parse_protocol(std::string_view s) { return parse_name<Protocol>(kProtocolNames, s); }

}  // namespace gc3::model
