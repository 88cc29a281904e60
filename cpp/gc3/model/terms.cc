#include "gc3/model/terms.h"

namespace gc3::model {

Calls::Calls(const Collective& collective) : collective_(collective) {
  if (empty()) return;
  for (const TermCall& call : collective_.custom_data()->calls) {
    std::vector<Terms> arguments;
    for (const std::vector<InputChunk>& argument : call.arguments) {
      Terms& terms = arguments.emplace_back();
      for (InputChunk term : argument) {
        if (term.rank == kComputed) term.index = of_collective_[term.index];
        ++terms[term];
      }
    }
    of_collective_.push_back(result(call.operation, call.result, std::move(arguments)).index);
  }
}

InputChunk Calls::result(std::uint32_t operation, std::uint32_t result, std::vector<Terms> arguments) {
  Call call{operation, result, std::move(arguments)};
  const auto [at, is_new] = numbers_.try_emplace(call, static_cast<std::uint32_t>(calls_.size()));
  if (is_new) calls_.push_back(std::move(call));
  return {kComputed, at->second};
}

Terms Calls::demanded(std::uint32_t rank, std::uint32_t index) const {
  Terms terms;
  for (InputChunk term : collective_.expected_terms(rank, index)) {
    if (term.rank == kComputed) term.index = of_collective_[term.index];
    ++terms[term];
  }
  return terms;
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
  out += data.operations[call.operation];
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

}  // namespace gc3::model
