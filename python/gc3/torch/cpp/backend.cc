// The backend gc3 of PyTorch in C++, for calls that take microseconds. It is compiled on the user's machine, for the
// PyTorch that is there, and uses the engine of gc3's core through gc3_calls.h.
//
// Plain calls are made here: contiguous tensors on the CPU, of types and reductions that the engine has. All others are
// described by gc3.torch.operations in Python, which the backend in Python uses as well, and take their turn here.

#include <ATen/record_function.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "gc3_calls.h"
#include "lane.h"
#include "works.h"

namespace gc3_torch {
namespace {

using c10d::OpType;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;
using Lengths = std::vector<std::uint64_t>;
using Addresses = std::vector<void*>;
using Calls = std::vector<gc3_call>;

// The numbers of the engine for types, reductions and collectives.
struct Numbers {
  std::array<std::int32_t, static_cast<std::size_t>(at::ScalarType::NumOptions)> types{};
  std::array<std::int32_t, 16> ops{};
  std::int32_t all_reduce, all_gather, reduce_scatter, all_to_all, broadcast;

  explicit Numbers(const gc3_calls& calls) {
    types.fill(-1);
    ops.fill(-1);
    const auto number = [&calls](const char* of, py::handle name) {
      return calls.number_of(of, name.cast<std::string>().c_str());
    };
    const auto tables = py::module_::import("gc3.torch.tensors");
    for (const auto& [type, name] : py::dict(tables.attr("TYPES"))) {
      types[static_cast<std::size_t>(type.cast<at::ScalarType>())] = number("type", name);
    }
    for (const auto& [op, name] : py::dict(tables.attr("OPS"))) {
      ops[static_cast<std::size_t>(op.cast<c10d::ReduceOp::RedOpType>())] = number("op", name);
    }
    all_reduce = calls.number_of("collective", "allreduce");
    all_gather = calls.number_of("collective", "allgather");
    reduce_scatter = calls.number_of("collective", "reducescatter");
    all_to_all = calls.number_of("collective", "alltoall");
    broadcast = calls.number_of("collective", "broadcast");
  }
  std::int32_t type(const Tensor& tensor) const { return types[static_cast<std::size_t>(tensor.scalar_type())]; }
  std::int32_t op(const c10d::ReduceOp& op) const { return ops[static_cast<std::size_t>(op.op_)]; }
};

Lengths sizes(const Tensors& tensors) {
  Lengths found;
  for (const Tensor& tensor : tensors) found.push_back(tensor.numel());
  return found;
}
Addresses places(const Tensors& tensors) {
  Addresses found;
  for (const Tensor& tensor : tensors) found.push_back(tensor.data_ptr());
  return found;
}
// Where blocks of so many bytes begin that follow each other.
Addresses places(const Tensor& tensor, const Lengths& lengths, std::uint64_t bytes) {
  Addresses found;
  auto* at = static_cast<std::uint8_t*>(tensor.data_ptr());
  for (const std::uint64_t length : lengths) {
    found.push_back(at);
    at += length * bytes;
  }
  return found;
}

class Backend : public c10d::Backend {
 public:
  // `operations`: a gc3.torch.operations.Described; `name`: of the events in the profiler.
  Backend(py::object operations, py::object capsule, int rank, int size, std::chrono::milliseconds timeout,
          std::string name)
      : c10d::Backend(rank, size),
        operations_(held(std::move(operations))),
        caller_(std::make_shared<Caller>(std::move(capsule))),
        numbers_(caller_->calls()),
        options_(c10::make_intrusive<Options>("gc3", timeout)),
        name_(std::move(name)) {}
  ~Backend() override { stop(); }

  const std::string getBackendName() const override { return name_; }
  c10::intrusive_ptr<Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  std::uint64_t getSequenceNumberForGroup() override { return calls_; }
  void setSequenceNumberForGroup() override {}

  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options) override {
    if (std::ranges::find(ranks, rank_) == ranks.end()) return nullptr;
    const py::gil_scoped_acquire acquire;
    return operations_->attr("split")(store, ranks, options).cast<c10::intrusive_ptr<c10d::Backend>>();
  }
  bool supportsTensorAlloc(c10::DeviceIndex) override { return true; }
  Tensor allocateTensor(long size, at::TensorOptions options) override {
    const py::gil_scoped_acquire acquire;
    const auto type = c10::typeMetaToScalarType(options.dtype());
    return operations_->attr("allocate_tensor")(size, type, options.device()).cast<Tensor>();
  }
  void shutdown() override {
    stop();
    const py::gil_scoped_acquire acquire;
    operations_->attr("shutdown")();
  }
  // Waits for the calls that were started.
  void settle() {
    launch(OpType::BARRIER, "settle", false, {}, {}, [](bool) {})->wait(kNoTimeout);
  }
  bool is_idle() { return lane_->is_idle(); }
  // Without the GIL, when the process ends: waits for started calls, and then for what follows messages.
  void end_calls() { lane_->stop(); }
  void end_messages() {
    if (!lane_->is_fork()) caller_->settle();
  }
  void abort() override {
    const py::gil_scoped_acquire acquire;
    operations_->attr("abort")();
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    const bool one = tensors.size() == 1;
    return equal(OpType::ALLREDUCE, "allreduce", "all_reduce", one ? reduced(tensors, options.reduceOp) : Calls(),
                 tensors, tensors, options, tensors);
  }
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    return slow(OpType::_ALLREDUCE_SPARSE, "allreduce_sparse", options.asyncOp, tensors, tensors, options);
  }
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return equal(OpType::ALLREDUCE_COALESCED, "allreduce_coalesced", "all_reduce", reduced(tensors, options.reduceOp),
                 tensors, tensors, options, tensors);
  }
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Calls calls;
    if (tensors.size() == 1 && is_plain(tensors[0]) && options.rootRank >= 0 && options.rootRank < size_) {
      calls.push_back(moved(numbers_.broadcast, tensors[0], tensors[0], tensors[0].numel()));
      calls[0].kind.root = static_cast<std::uint32_t>(options.rootRank);
      if (options.rootRank != rank_) calls[0].input = nullptr;
    }
    return equal(OpType::BROADCAST, "broadcast", "broadcast", std::move(calls), tensors, tensors, options, tensors);
  }
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    return slow(OpType::REDUCE, "reduce", options.asyncOp, tensors, tensors, options);
  }

  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override {
    if (outputs.size() != 1 || inputs.size() != 1 || outputs[0].size() != static_cast<std::size_t>(size_) ||
        !are_alike(inputs[0], outputs[0]) || outputs[0][rank_].numel() != inputs[0].numel()) {
      return slow(OpType::ALLGATHER, "allgather", options.asyncOp, inputs, outputs, inputs, options);
    }
    const gc3_kind kind{numbers_.all_gather, numbers_.type(inputs[0]), 0, 0};
    return launch(OpType::ALLGATHER, "all_gather", options.asyncOp, inputs, outputs[0],
                  [caller = caller_, given = inputs[0], out = outputs[0], kind](bool here) {
                    run_v(*caller, kind, sizes(out), {given.data_ptr()}, places(out), here);
                  });
  }
  WorkPtr all_gather_single(Tensor& output, Tensor& input, const c10d::AllgatherOptions& options) override {
    return equal(OpType::_ALLGATHER_BASE, "all_gather_single", "all_gather_into_tensor",
                 blocks(numbers_.all_gather, 0, {input}, {output}), {input}, {output}, options, output, input);
  }
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) override {
    return equal(OpType::ALLGATHER_INTO_TENSOR_COALESCED, "all_gather_single_coalesced", "all_gather_into_tensor",
                 blocks(numbers_.all_gather, 0, inputs, outputs), inputs, outputs, options, outputs, inputs);
  }
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override {
    return slow(OpType::ALLGATHER_COALESCED, "allgather_coalesced", options.asyncOp, inputs, outputs, inputs, options);
  }
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    return slow(OpType::GATHER, "gather", options.asyncOp, inputs, outputs, inputs, options);
  }
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    return slow(OpType::SCATTER, "scatter", options.asyncOp, outputs, outputs, inputs, options);
  }

  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override {
    const std::int32_t op = numbers_.op(options.reduceOp);
    const bool averages = options.reduceOp == c10d::ReduceOp::AVG;  // Python multiplies before
    if (op < 0 || averages || outputs.size() != 1 || inputs.size() != 1 ||
        inputs[0].size() != static_cast<std::size_t>(size_) || !are_alike(outputs[0], inputs[0]) ||
        inputs[0][rank_].numel() != outputs[0].numel()) {
      return slow(OpType::REDUCE_SCATTER, "reduce_scatter", options.asyncOp, outputs, outputs, inputs, options);
    }
    const gc3_kind kind{numbers_.reduce_scatter, numbers_.type(outputs[0]), op, 0};
    return launch(OpType::REDUCE_SCATTER, "reduce_scatter", options.asyncOp, inputs[0], outputs,
                  [caller = caller_, given = inputs[0], out = outputs[0], kind](bool here) {
                    run_v(*caller, kind, sizes(given), places(given), {out.data_ptr()}, here);
                  });
  }
  WorkPtr reduce_scatter_single(Tensor& output, Tensor& input, const c10d::ReduceScatterOptions& options) override {
    return equal(OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_single", "reduce_scatter_tensor",
                 blocks(numbers_.reduce_scatter, numbers_.op(options.reduceOp), {input}, {output}), {input}, {output},
                 options, output, input);
  }
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    return equal(OpType::REDUCE_SCATTER_TENSOR_COALESCED, "reduce_scatter_single_coalesced", "reduce_scatter_tensor",
                 blocks(numbers_.reduce_scatter, numbers_.op(options.reduceOp), inputs, outputs), inputs, outputs,
                 options, outputs, inputs);
  }

  WorkPtr all_to_all_single(Tensor& output, Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override {
    if (output_splits.empty() && input_splits.empty() && are_alike(input, {output}) &&
        input.numel() == output.numel() && input.numel() % size_ == 0) {
      return equal(OpType::ALLTOALL_BASE, "all_to_all_single", "all_to_all",
                   {moved(numbers_.all_to_all, input, output, input.numel() / size_)}, {input}, {output}, options,
                   output, input, output_splits, input_splits);
    }
    const bool split = is_split(input, input_splits) && is_split(output, output_splits) &&
                       input.scalar_type() == output.scalar_type() && input.sizes().slice(1) == output.sizes().slice(1);
    if (!split) {
      return slow(OpType::ALLTOALL_BASE, "all_to_all_single", options.asyncOp, {input}, output, input, output_splits,
                  input_splits, options);
    }
    const Lengths sent(input_splits.begin(), input_splits.end());
    const Lengths expected(output_splits.begin(), output_splits.end());
    const auto row = static_cast<std::uint64_t>(c10::multiply_integers(input.sizes().slice(1)));
    const std::uint64_t bytes = row * input.element_size();
    return exchange("all_to_all", OpType::ALLTOALL_BASE, options.asyncOp, {input}, {output}, sent, expected, row,
                    places(input, sent, bytes), places(output, expected, bytes));
  }
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override {
    const auto ranks = static_cast<std::size_t>(size_);
    if (outputs.size() != ranks || inputs.size() != ranks || !are_alike(inputs[0], outputs) ||
        !are_alike(outputs[0], inputs)) {
      return slow(OpType::ALLTOALL, "alltoall", options.asyncOp, inputs, outputs, inputs, options);
    }
    return exchange("all_to_all", OpType::ALLTOALL, options.asyncOp, inputs, outputs, sizes(inputs), sizes(outputs), 1,
                    places(inputs), places(outputs));
  }

  WorkPtr barrier(const c10d::BarrierOptions& options) override {
    return launch(OpType::BARRIER, "barrier", options.asyncOp, {}, {}, [caller = caller_](bool here) {
      caller->made([&](void* comm, const gc3_errors* errors) { return caller->calls().barrier(comm, here, errors); });
    });
  }
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override {
    settle();
    const py::gil_scoped_acquire acquire;
    operations_->attr("monitored_barrier")(options, wait_all_ranks);
  }

  WorkPtr send(Tensors& tensors, int to, int tag) override { return message(OpType::SEND, "send", tensors, to, tag); }
  WorkPtr recv(Tensors& tensors, int source, int tag) override {
    return message(OpType::RECV, "recv", tensors, source, tag);
  }
  WorkPtr recvAnysource(Tensors& tensors, int tag) override {
    return message(OpType::RECVANYSOURCE, "recvAnySource", tensors, -1, tag);
  }

 private:
  bool is_plain(const Tensor& tensor) const {
    return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.numel() != 0 &&
           tensor.is_contiguous() && !tensor.is_neg() && !tensor.is_conj() && numbers_.type(tensor) >= 0;
  }
  bool all_plain(const Tensors& tensors) const {
    return std::ranges::all_of(tensors, [this](const Tensor& tensor) { return is_plain(tensor); });
  }
  bool are_alike(const Tensor& one, const Tensors& others) const {
    return is_plain(one) && std::ranges::all_of(others, [&](const Tensor& other) {
             return is_plain(other) && other.scalar_type() == one.scalar_type();
           });
  }
  // Whether the splits of an all-to-all are given and fit a tensor.
  bool is_split(const Tensor& tensor, const std::vector<std::int64_t>& splits) const {
    if (!is_plain(tensor) || tensor.dim() == 0 || splits.size() != static_cast<std::size_t>(size_)) return false;
    std::int64_t all = 0;
    for (const std::int64_t split : splits) {
      if (split < 0) return false;
      all += split;
    }
    return all == tensor.size(0);
  }
  // The calls of plain tensors; none: Python describes them.
  Calls reduced(const Tensors& tensors, const c10d::ReduceOp& reduction) const {
    const std::int32_t op = numbers_.op(reduction);
    Calls calls;
    if (op < 0 || !all_plain(tensors)) return calls;
    for (const Tensor& tensor : tensors) {
      calls.push_back(moved(numbers_.all_reduce, tensor, tensor, tensor.numel()));
      calls.back().kind.op = op;
    }
    return calls;
  }
  // The same of an all-gather or reduce-scatter, one of each pair of tensors.
  Calls blocks(std::int32_t collective, std::int32_t op, const Tensors& inputs, const Tensors& outputs) const {
    const bool gathers = collective == numbers_.all_gather;
    const Tensors& parts = gathers ? inputs : outputs;
    const Tensors& wholes = gathers ? outputs : inputs;
    Calls calls;
    if (op < 0 || inputs.size() != outputs.size()) return calls;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (!are_alike(parts[i], {wholes[i]}) || wholes[i].numel() != parts[i].numel() * size_) return {};
      calls.push_back(moved(collective, inputs[i], outputs[i], parts[i].numel()));
      calls.back().kind.op = op;
    }
    return calls;
  }
  gc3_call moved(std::int32_t collective, const Tensor& input, const Tensor& output, std::int64_t count) const {
    return {{collective, numbers_.type(input), 0, 0},
            input.data_ptr(),
            output.data_ptr(),
            static_cast<std::uint64_t>(count)};
  }
  static void run_v(const Caller& caller, const gc3_kind& kind, const Lengths& counts, const Addresses& input,
                    const Addresses& output, bool here) {
    const gc3_v_call call{kind, counts.data(), counts.size(), input.data(), input.size(), output.data(), output.size()};
    caller.made([&](void* comm, const gc3_errors* errors) { return caller.calls().run_v(comm, &call, here, errors); });
  }

  // A call of equal blocks, or several at once; without any, the method of Python describes it.
  template <class Options, class... Arguments>
  WorkPtr equal(OpType type, const char* method, const char* name, Calls calls, const Tensors& inputs,
                const Tensors& outputs, const Options& options, const Arguments&... arguments) {
    if (calls.empty()) return slow(type, method, options.asyncOp, inputs, arguments..., options);
    // The tensors are kept by the function until the call has ended.
    return launch(type, name, options.asyncOp, inputs, outputs,
                  [caller = caller_, calls = std::move(calls), inputs, outputs](bool here) {
                    caller->made([&](void* comm, const gc3_errors* errors) {
                      return caller->calls().run(comm, calls.data(), calls.size(), here, errors);
                    });
                  });
  }
  // An all-to-all whose blocks have lengths of their own, which the ranks tell each other first.
  WorkPtr exchange(const char* name, OpType type, bool later, Tensors inputs, Tensors outputs, const Lengths& sent,
                   const Lengths& expected, std::uint64_t row, const Addresses& from, const Addresses& to) {
    const gc3_kind kind{numbers_.all_to_all, numbers_.type(inputs[0]), 0, 0};
    return launch(type, name, later, inputs, outputs,
                  [caller = caller_, ranks = size_, kind, sent, expected, row, from, to, inputs, outputs](bool here) {
                    const gc3_v_known known{kind, row, sent.data(), sent.size(), expected.data(), expected.size()};
                    Lengths counts(static_cast<std::size_t>(ranks) * ranks);
                    caller->made([&](void* comm, const gc3_errors* errors) {
                      return caller->calls().agree(comm, &known, counts.data(), here, errors);
                    });
                    for (std::uint64_t& count : counts) count *= row;
                    run_v(*caller, kind, counts, from, to, here);
                  });
  }
  // A call that Python describes: its name, a function that makes it, and the tensors that it writes. `inputs` are for
  // the profiler.
  template <class... Arguments>
  WorkPtr slow(OpType type, const char* method, bool later, const Tensors& inputs, const Arguments&... arguments) {
    std::string name;
    Held run;
    Tensors outputs;
    {
      const py::gil_scoped_acquire acquire;
      const py::tuple found = operations_->attr(method)(arguments...);
      name = found[0].cast<std::string>();
      run = held(found[1]);
      outputs = found[2].cast<Tensors>();
    }
    return launch(type, name.c_str(), later, inputs, outputs, [run](bool) {
      const py::gil_scoped_acquire acquire;
      (*run)();
    });
  }
  // Makes a call here if the caller waits for it and no other is waiting, else in its turn.
  template <class Run>
  WorkPtr launch(OpType type, const char* name, bool later, const Tensors& inputs, const Tensors& outputs, Run run) {
    std::string title;
    const bool traced = at::hasCallbacks();
    if (traced) title = name_ + ":" + name;
    auto work = c10::make_intrusive<Call>(lane_, caller_, rank_, type, traced ? title.c_str() : nullptr,
                                          traced ? std::optional(inputs) : std::nullopt, outputs, ++calls_);
    if (!later || lane_->inside()) {
      const auto now = [&] {
        try {
          run(true);
        } catch (...) {
          work->end(kept(std::current_exception()));
          throw;
        }
        work->end(nullptr);
      };
      if (lane_->run_now(now)) return work;
    }
    if (lane_->is_fork()) raise("fork_error");
    auto task = [work, run = std::move(run)](bool here) {
      std::exception_ptr problem;
      std::exception_ptr interrupt;
      try {
        run(here);
      } catch (Interrupted&) {
        interrupt = std::current_exception();
        problem = kept(interrupt);
      } catch (py::error_already_set& raised) {  // by a call that Python describes
        problem = std::current_exception();
        if (here && is_interrupt(raised)) interrupt = problem;
        problem = kept(problem);
      } catch (...) {
        problem = kept(std::current_exception());
      }
      work->end(problem);
      return interrupt;
    };
    bool taken = false;
    try {
      taken = lane_->put(std::move(task));
    } catch (const std::system_error&) {
      raise("thread_error");
    }
    if (!taken) raise("destroyed_error");
    return work;
  }
  WorkPtr message(OpType type, const char* name, Tensors& tensors, int peer, int tag) {
    Tensor memory;
    std::int32_t number = 0;  // of a type that the engine does not have
    if (tensors.size() == 1 && is_plain(tensors[0])) {
      memory = tensors[0];
    } else {
      const py::gil_scoped_acquire acquire;
      memory = operations_->attr("memory_of")(tensors, name).cast<Tensor>();
      number = operations_->attr("number_of")(memory).cast<std::int32_t>();
    }
    if (number == 0) number = numbers_.type(memory);
    const std::string title = at::hasCallbacks() ? name_ + ":" + name : std::string();
    return c10::make_intrusive<Message>(caller_, rank_, type, title.empty() ? nullptr : title.c_str(), tensors[0],
                                        memory, number, peer, tag);
  }
  void stop() {
    if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) {
      const py::gil_scoped_release release;  // a call that Python describes may be running
      lane_->stop();
    } else {
      lane_->stop();
    }
  }

  Held operations_;
  std::shared_ptr<Caller> caller_;
  Numbers numbers_;
  c10::intrusive_ptr<Options> options_;
  std::string name_;
  std::shared_ptr<Lane> lane_ = std::make_shared<Lane>();
  std::atomic<std::uint64_t> calls_ = 0;
};

}  // namespace
}  // namespace gc3_torch

PYBIND11_MODULE(gc3_torch, m) {
  using gc3_torch::Backend;
  m.attr("compiler") = "g++ " __VERSION__;
  py::class_<Backend, c10::intrusive_ptr<Backend>, c10d::Backend>(m, "Backend", py::module_local())
      .def(py::init([](py::object operations, py::object capsule, int rank, int size, double timeout,
                       const std::string& name) {
             const auto limit = std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1000));
             return c10::make_intrusive<Backend>(std::move(operations), std::move(capsule), rank, size, limit, name);
           }),
           py::arg("operations"), py::arg("calls"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
           py::arg("name"))
      .def("settle", &Backend::settle, py::call_guard<py::gil_scoped_release>())
      .def("is_idle", &Backend::is_idle)
      .def("end_calls", &Backend::end_calls, py::call_guard<py::gil_scoped_release>())
      .def("end_messages", &Backend::end_messages, py::call_guard<py::gil_scoped_release>());
}
