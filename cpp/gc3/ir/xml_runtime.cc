#include "gc3/ir/xml_runtime.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/files.h"
#include "gc3/ir/xml_layout.h"

namespace gc3::ir {
namespace {

// An operation of a threadblock as the runtime keeps it: one step, or several merged reductions.
struct Operation {
  std::uint32_t first_step = 0;  // in Rewriter::members_
  std::uint32_t step_count = 0;
  std::uint32_t first_wait = 0;  // in Rewriter::waits_
  std::uint32_t wait_count = 0;
  std::uint32_t number = 0;     // the step it publishes, if any
  std::uint32_t last_line = 0;  // where its last step stands in the threadblock after the rewriting
  bool publishes = false;
};

class Rewriter {
 public:
  Rewriter(XmlDocument& doc, const XmlTokens& tokens, const XmlTarget& target)
      : doc_(doc), tokens_(tokens), target_(target) {}

  Status rewrite() {
    doc_.slots.reset();
    doc_.instances = doc_.split = 1;
    if (target_.dialect == XmlDialect::msccl) doc_.out_of_place = !doc_.in_place;  // the format has no outofplace there
    rewritten_.reserve(doc_.steps.size());
    for (const XmlGpu& gpu : doc_.gpus) {
      operations_.clear();
      members_.clear();
      waits_.clear();
      first_operation_.clear();
      for (std::uint32_t t = gpu.first_tb; t < gpu.first_tb + gpu.tb_count; ++t) {
        first_operation_.push_back(operations_.size());
        GC3_CHECK(collect(doc_.threadblocks[t]));
      }
      first_operation_.push_back(operations_.size());
      for (std::uint32_t t = 0; t < gpu.tb_count; ++t) GC3_CHECK(write(gpu, t));
    }
    doc_.steps = std::move(rewritten_);
    return {};
  }

 private:
  // Combines the steps of a threadblock into operations.
  Status collect(const XmlThreadblock& tb) {
    std::uint32_t reductions = 0;        // the runtimes count them over the whole threadblock
    const XmlStep* mergeable = nullptr;  // the reduction that the next one may join
    std::vector<std::uint32_t> pending;  // steps whose dependencies wait for an operation
    for (std::uint32_t s = tb.first_step; s < tb.first_step + tb.step_count; ++s) {
      const XmlStep& step = doc_.steps[s];
      const bool waits = step.dep_tb >= 0;
      if (waits) pending.push_back(s);
      if (step.opcode == Opcode::nop) continue;
      const bool reduces = step.opcode == Opcode::reduce;
      const bool joins = reduces && !waits && mergeable != nullptr && mergeable->dst_buffer == step.dst_buffer &&
                         mergeable->dst_chunk == step.dst_chunk && mergeable->src_buffer == step.src_buffer;
      if (!joins) {
        if (!pending.empty() && !waits) {
          return refuse(step, "takes further dependencies on a nop only where the step after it has one of its own");
        }
        begin_operation(pending);
      }
      Operation& operation = operations_.back();
      members_.push_back(s);
      ++operation.step_count;
      operation.publishes = step.publishes;
      if (operation.step_count > kMaxMergedReductions) {
        return refuse(step, "merges reductions in a row, and more than 16 overrun an array of its kernels");
      }
      if (reduces) ++reductions;
      mergeable = reduces && !step.publishes && reductions != kMaxMergedReductions ? &step : nullptr;
    }
    number_operations();
    return {};
  }

  void begin_operation(std::vector<std::uint32_t>& pending) {
    Operation operation;
    operation.first_step = static_cast<std::uint32_t>(members_.size());
    operation.first_wait = static_cast<std::uint32_t>(waits_.size());
    operation.wait_count = static_cast<std::uint32_t>(pending.size());
    operations_.push_back(operation);
    // The step's own dependency comes first, as writers put it.
    waits_.insert(waits_.end(), pending.rbegin(), pending.rbegin() + (pending.empty() ? 0 : 1));
    if (!pending.empty()) waits_.insert(waits_.end(), pending.begin(), pending.end() - 1);
    pending.clear();
  }

  // The numbers that the interpreters count while they run, and the lines of the steps afterwards.
  void number_operations() {
    std::uint32_t number = 0;
    std::uint32_t line = 0;
    for (std::size_t o = first_operation_.back(); o < operations_.size(); ++o) {
      Operation& operation = operations_[o];
      const std::uint32_t nops = std::max(operation.wait_count, 1U) - 1;
      number += nops + operation.step_count - 1;
      operation.number = number++;
      line += nops + operation.step_count;
      operation.last_line = line - 1;
    }
  }

  Status write(const XmlGpu& gpu, std::uint32_t t) {
    XmlThreadblock& tb = doc_.threadblocks[gpu.first_tb + t];
    const auto begin = static_cast<std::uint32_t>(rewritten_.size());
    for (std::size_t o = first_operation_[t]; o < first_operation_[t + 1]; ++o) {
      const Operation& operation = operations_[o];
      const auto members = std::span(members_).subspan(operation.first_step, operation.step_count);
      const auto waits = std::span(waits_).subspan(operation.first_wait, operation.wait_count);
      for (std::size_t w = 1; w < waits.size(); ++w) {
        XmlStep nop;
        nop.offset = doc_.steps[waits[w]].offset;
        GC3_CHECK(resolve(gpu, doc_.steps[waits[w]], nop));
        rewritten_.push_back(nop);
      }
      const std::size_t first = rewritten_.size();
      for (const std::uint32_t s : members) {
        rewritten_.push_back(doc_.steps[s]);
        rewritten_.back().count = doc_.steps[members.back()].count;
        rewritten_.back().dep_tb = -1;
      }
      if (!waits.empty()) GC3_CHECK(resolve(gpu, doc_.steps[waits.front()], rewritten_[first]));
    }
    tb.first_step = begin;
    tb.step_count = static_cast<std::uint32_t>(rewritten_.size()) - begin;
    return {};
  }

  // Gives `to` the dependency of a step, on the line where the wait ends after the rewriting.
  Status resolve(const XmlGpu& gpu, const XmlStep& from, XmlStep& to) const {
    const auto tb = static_cast<std::uint32_t>(from.dep_tb);
    if (tb >= gpu.tb_count) {
      return at(from, "depid " + std::to_string(tb) + " of " + std::to_string(gpu.tb_count) + " threadblocks");
    }
    const auto ends =
        std::span(operations_).subspan(first_operation_[tb], first_operation_[tb + 1] - first_operation_[tb]);
    const auto end = std::ranges::find_if(ends, [&](const Operation& operation) {
      return operation.publishes && std::int64_t{operation.number} >= from.dep_step;
    });
    if (from.dep_step < 0 || end == ends.end()) {
      return at(from, "waits for step " + std::to_string(from.dep_step) + " of threadblock " + std::to_string(tb) +
                          ", which " + std::string(target_.title) +
                          " never sees done: neither what it counts as that step" + " nor a later one has hasdep=1");
    }
    to.dep_tb = from.dep_tb;
    to.dep_step = static_cast<std::int32_t>(end->last_line);
    return {};
  }

  Diagnostic at(const XmlStep& step, std::string text) const { return tokens_.error_at(step.offset, std::move(text)); }
  Diagnostic refuse(const XmlStep& step, const char* why) const {
    Diagnostic problem = at(step, std::string(target_.title) + " " + why);
    problem.code = ErrorCode::TargetLimit;
    return problem;
  }

  XmlDocument& doc_;
  const XmlTokens& tokens_;
  const XmlTarget& target_;
  std::vector<XmlStep> rewritten_;
  // Of the current rank.
  std::vector<Operation> operations_;
  std::vector<std::size_t> first_operation_;  // of each threadblock; one more at the end
  std::vector<std::uint32_t> members_;        // steps, in XmlDocument::steps
  std::vector<std::uint32_t> waits_;          // steps that have the dependency
};

}  // namespace

Status rewrite_as_executed(XmlDocument& doc, const XmlTokens& tokens, const XmlTarget& target) {
  return Rewriter(doc, tokens, target).rewrite();
}

}  // namespace gc3::ir
