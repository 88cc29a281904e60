#include "gc3/model/terms.h"

#include <algorithm>
#include <array>

#include "gc3/base/sha256.h"

namespace gc3::model {

Calls::Calls(const Collective& collective)
    : Calls(collective, collective.has_tensors() ? collective.custom_data()->properties : std::vector<Properties>()) {}

Calls::Calls(const Collective& collective, std::vector<Properties> properties)
    : collective_(collective), properties_(std::move(properties)) {
  if (empty()) return;
  for (const TermCall& call : collective_.custom_data()->calls) {
    const auto part = part_arguments(call, properties_[call.operation]);
    std::vector<Terms> arguments;
    for (const std::vector<InputChunk>& argument : part ? *part : call.arguments) arguments.push_back(sum_of(argument));
    if (part) {
      of_collective_.push_back(made(call.operation, call.result, arguments).value_or(Terms{}));
      continue;
    }
    Call whole{call.operation, call.result, std::move(arguments)};
    whole.of_whole = std::string(call.columns ? "columns " : "rows ") + std::to_string(call.part) + " of ";
    of_collective_.push_back({{number(std::move(whole)), 1}});
  }
}

InputChunk Calls::number(Call call) {
  const auto [at, is_new] = numbers_.try_emplace(call, static_cast<std::uint32_t>(calls_.size()));
  if (is_new) calls_.push_back(std::move(call));
  return {kComputed, at->second};
}

std::optional<Terms> Calls::made(std::uint32_t operation, std::uint32_t result, const std::vector<Terms>& arguments) {
  // All choices of one term of each linear operand, one operand after the other.
  std::vector<std::pair<Call, std::uint64_t>> chosen = {{{operation, result, {}}, 1}};
  for (std::size_t k = 0; k < arguments.size(); ++k) {
    const bool linear = covers(properties_[operation].linear, k);
    const std::uint64_t choices = linear ? chosen.size() * arguments[k].size() : 0;
    if (choices > room_) room_ = 0;
    if (room_ == 0) return std::nullopt;
    room_ -= choices;
    std::vector<std::pair<Call, std::uint64_t>> longer;
    for (const auto& [call, times] : chosen) {
      if (!linear) {
        longer.emplace_back(call, times).first.arguments.push_back(arguments[k]);
        continue;
      }
      for (const auto& [term, count] : arguments[k]) {
        longer.emplace_back(call, both_times(times, count)).first.arguments.push_back({{term, 1}});
      }
    }
    chosen = std::move(longer);
  }
  Terms sum;
  for (auto& [call, times] : chosen) {
    std::uint64_t& count = sum[number(std::move(call))];
    count = plus_times(count, times);
  }
  return sum;
}

Terms Calls::sum_of(const std::vector<InputChunk>& terms) const {
  Terms sum;
  for (const InputChunk& term : terms) {
    if (term.rank != kComputed) {
      ++sum[term];
      continue;
    }
    for (const auto& [made, times] : of_collective_[term.index]) sum[made] = plus_times(sum[made], times);
  }
  return sum;
}

Terms Calls::demanded(std::uint32_t rank, std::uint32_t index) const {
  return sum_of(collective_.expected_terms(rank, index));
}

std::optional<std::string> Calls::name(const InputChunk& term) const {
  if (empty()) return std::nullopt;
  std::string out;
  spell(term, out);
  return out;
}

// An argument can be much longer than a line, and so can its own arguments.
void Calls::spell(const InputChunk& term, std::string& out) const {
  constexpr std::size_t kMost = 400;
  const CustomCollective& data = *collective_.custom_data();
  if (out.size() > kMost) {
    if (!out.ends_with("...")) out += "...";
    return;
  }
  if (term.rank != kComputed) {
    std::uint32_t index = term.index;
    for (const Tensor& t : data.tensors) {
      if (index < t.chunks[term.rank]) {
        out.append(t.name).append("[").append(std::to_string(index));
        out.append("] of rank ").append(std::to_string(term.rank));
        return;
      }
      index -= t.chunks[term.rank];
    }
  }
  const Call& call = calls_[term.index];
  out.append(call.of_whole).append(data.operations[call.operation]);
  if (call.result != 0) out.append("#").append(std::to_string(call.result));
  out += "(";
  for (const Terms& argument : call.arguments) {
    if (&argument != &call.arguments.front()) out += ", ";
    spell(argument, out);
  }
  out += ")";
}

void Calls::spell(const Terms& terms, std::string& out) const {
  const char* separator = "";
  for (const auto& [term, times] : terms) {
    out.append(separator).append(times_text(times));
    spell(term, out);
    separator = " + ";
  }
}

Terms counted(const std::vector<InputChunk>& inputs) {
  Terms terms;
  for (const InputChunk& input : inputs) ++terms[input];
  return terms;
}

std::string terms_text(std::uint32_t terms) {
  return std::to_string(terms) + (terms == 1 ? " term" : " terms") + (terms == kManyTerms ? " or more" : "");
}

std::string times_text(std::uint64_t times) {
  if (times == 1) return "";
  return (times == kManyTimes ? "2^62 or more" : std::to_string(times)) + " x ";
}

Terms difference(const Terms& all, const Terms& some) {
  Terms left;
  for (const auto& [input, times] : all) {
    const auto found = some.find(input);
    const std::uint64_t taken = found == some.end() ? 0 : found->second;
    if (times > taken) left[input] = times == kManyTimes ? times : times - taken;
  }
  return left;
}

std::string Collective::condition() const {
  if (custom_ == nullptr) return {};
  Sha256 all;
  const auto word = [&](std::uint64_t value) {  // the same on every machine
    std::array<char, 8> bytes{};
    for (char& byte : bytes) {
      byte = static_cast<char>(value & 0xffU);
      value >>= 8U;
    }
    all.update({bytes.data(), bytes.size()});
  };
  const auto words = [&](const auto& values) {
    word(values.size());
    for (const auto value : values) word(static_cast<std::uint64_t>(value));
  };
  const auto text = [&](std::string_view value) {
    word(value.size());
    all.update(value);
  };
  const auto sum = [&](std::span<const InputChunk> terms) {
    std::vector<InputChunk> sorted(terms.begin(), terms.end());  // their order means nothing
    std::ranges::sort(sorted);
    word(sorted.size());
    for (const InputChunk& term : sorted) {
      word(term.rank);
      word(term.index);
    }
  };
  word(chunks_ / split_);
  words(custom_->input_chunks);
  words(custom_->output_chunks);
  for (const std::optional<std::int64_t>& at : custom_->alias) {
    word(at.has_value() ? 1 : 0);
    word(static_cast<std::uint64_t>(at.value_or(0)));
  }
  for (std::size_t i = 0; i + 1 < custom_->begin.size(); ++i) {
    sum(std::span(custom_->terms).subspan(custom_->begin[i], custom_->begin[i + 1] - custom_->begin[i]));
  }
  for (const Tensor& tensor : custom_->tensors) {
    text(tensor.name);
    word(static_cast<std::uint64_t>(tensor.buffer));
    words(tensor.chunks);
    word(tensor.length);
  }
  for (std::size_t i = 0; i < custom_->operations.size(); ++i) {
    text(custom_->operations[i]);
    const Properties& has = custom_->properties[i];
    words(std::array{has.linear, has.rowwise, has.elementwise});
  }
  for (const TermCall& call : custom_->calls) {
    words(std::array{call.operation, call.result, call.part, call.columns ? 1U : 0U});
    words(call.pieces);
    word(call.arguments.size());
    for (const std::vector<InputChunk>& argument : call.arguments) sum(argument);
  }
  return hex(all.finish());
}

}  // namespace gc3::model
