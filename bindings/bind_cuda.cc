#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "arrays.h"
#include "call_buffers.h"
#include "communicator.h"
#include "convert.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/errors/model.h"
#include "gc3/runtime/cuda/engine.h"
#include "gc3/runtime/cuda/nccl.h"
#include "gc3/runtime/cuda/proxy.h"
#include "gc3/runtime/cuda/rank_engine.h"
#include "gc3/runtime/cuda/runtime.h"
#include "gc3/runtime/cuda/windows.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

using cuda::Device;
using cuda::Nccl;
using cuda::Proxy;
using cuda::RankEngine;
using cuda::Runtime;
using cuda::Windows;

// Addresses of device memory and streams are integers, because Python has no types for them.
template <class T>
std::vector<T*> pointers(const std::vector<std::uintptr_t>& addresses) {
  std::vector<T*> made;
  for (const std::uintptr_t address : addresses) made.push_back(reinterpret_cast<T*>(address));
  return made;
}

// Its end may wait: for calls that run, or for a lock whose owner needs the GIL for `interrupted`. Only Python holds
// it.
template <class T>
std::shared_ptr<T> ending_without_gil(std::unique_ptr<T> made) {
  return {made.release(), [](T* last) {
            const nb::gil_scoped_release release;
            delete last;
          }};
}

template <class Program>
std::shared_ptr<cuda::Engine> make_cuda_engine(const std::shared_ptr<Runtime>& runtime, const Program& program,
                                               const std::vector<int>& devices, std::uint32_t slots,
                                               std::uint64_t slot_bytes, double timeout) {
  return ending_without_gil(
      without_gil([&] { return cuda::Engine::create(runtime, program, devices, {slots, slot_bytes, timeout}); }));
}

void enqueue(cuda::Engine& engine, const std::vector<std::uintptr_t>& inputs,
             const std::vector<std::uintptr_t>& outputs, std::size_t count, std::string_view dtype, const Operation& op,
             const std::vector<std::uintptr_t>& streams) {
  const Reduction reduction = parse_reduction(dtype, op);
  const std::vector<const void*> in = pointers<const void>(inputs);
  const std::vector<void*> out = pointers<void>(outputs);
  const interp::Call call = {in, out, count, reduction.type, reduction.op, reduction.factors};
  without_gil([&] { return engine.enqueue(call, pointers<void>(streams)); });
}

template <class Program>
std::shared_ptr<RankEngine> make_rank_engine(const std::shared_ptr<Runtime>& runtime, const Program& program,
                                             std::uint32_t rank, int device, std::uint32_t slots,
                                             std::uint64_t slot_bytes, double timeout,
                                             const std::shared_ptr<Windows>& windows,
                                             const std::shared_ptr<Proxy>& proxy) {
  return ending_without_gil(without_gil([&] {
    return RankEngine::create(runtime, program, rank, device, {slots, slot_bytes, timeout}, windows, proxy);
  }));
}

std::shared_ptr<Proxy> make_proxy(const Joined& joined) {
  return without_gil([&]() -> Result<std::shared_ptr<Proxy>> {
    std::unique_ptr<transport::Carrier> carrier = joined.body().carrier();
    return carrier == nullptr ? nullptr : std::make_shared<Proxy>(std::move(carrier));
  });
}

nb::bytes new_window_id(const Nccl& nccl) {
  const std::string id = unwrap(Windows::new_id(nccl));
  return nb::bytes(id.data(), id.size());
}

std::shared_ptr<Windows> join_windows(const std::shared_ptr<Nccl>& nccl, Runtime& runtime, int device,
                                      const nb::bytes& id, std::uint32_t rank, std::uint32_t ranks, double timeout) {
  const std::string joined(id.c_str(), id.size());
  return without_gil([&]() -> Result<std::shared_ptr<Windows>> {
    GC3_ASSIGN(const std::shared_ptr<Device> on, runtime.device(device));
    return Windows::join(nccl, on, joined, rank, ranks, timeout);
  });
}

constexpr const char* kCopies =
    "Who carries out the messages of a program with the protocol Copy: \"copy engines\", or \"threadblocks: \" and "
    "why; empty for other programs.";
std::string copies_of(const cuda::Launcher& launcher) {
  if (!launcher.plan().copied) return "";
  return launcher.uses_copy_engines() ? "copy engines" : "threadblocks: " + launcher.why_not();
}

nb::bytes bytes_of(const cuda::ArenaHandle& handle) { return nb::bytes(&handle, sizeof handle); }

std::vector<cuda::ArenaHandle> handles_of(const std::vector<nb::bytes>& all) {
  std::vector<cuda::ArenaHandle> copies;
  for (const nb::bytes& bytes : all) {
    cuda::ArenaHandle handle;
    if (bytes.size() != sizeof handle) {
      throw DiagnosticError({ErrorCode::BadBuffer, "a handle has " + std::to_string(sizeof handle) + " bytes"});
    }
    std::memcpy(&handle, bytes.data(), sizeof handle);
    copies.push_back(handle);
  }
  return copies;
}

// The contents of a DLPack capsule of an array on a device.
nb::tuple describe_dlpack(const nb::object& capsule) {
  const auto array = nb::cast<nb::ndarray<>>(capsule);
  if (const int lanes = array.dtype().lanes; lanes != 1) {
    throw DiagnosticError(
        {ErrorCode::BadDataType, "elements of " + std::to_string(lanes) + " numbers (DLPack's lanes)"});
  }
  nb::list shape;
  bool contiguous = true;
  std::int64_t stride = 1;
  for (std::size_t i = array.ndim(); i-- != 0;) {
    contiguous = contiguous && (array.shape(i) == 1 || array.stride(i) == stride);
    stride *= static_cast<std::int64_t>(array.shape(i));
  }
  for (std::size_t i = 0; i < array.ndim(); ++i) shape.append(array.shape(i));
  return nb::make_tuple(reinterpret_cast<std::uintptr_t>(array.data()), nb::tuple(shape),
                        static_cast<int>(array.dtype().code), array.dtype().bits, array.device_id(),
                        contiguous || stride == 0);
}

}  // namespace

void bind_cuda(nb::module_& m) {
  nb::class_<Runtime>(m, "CudaRuntime", "The CUDA driver and run-time compiler, loaded by name.")
      .def(nb::new_([](const std::string& driver, std::vector<std::string> compilers) {
             return unwrap(Runtime::open(driver, std::move(compilers)));
           }),
           "driver"_a, "compilers"_a)
      .def_prop_ro("devices", [](const Runtime& runtime) { return runtime.driver().device_count(); })
      .def_prop_ro(
          "version", [](const Runtime& runtime) { return unwrap(runtime.driver().version()); },
          "1000 * major + 10 * minor of the CUDA that the driver supports.")
      .def(
          "describe", [](Runtime& runtime, int device) { return unwrap(runtime.device(device))->describe(); },
          "device"_a, "Number and name of a device.")
      .def(
          "device_of",
          [](const Runtime& runtime, std::uintptr_t address) { return unwrap(runtime.driver().device_of(address)); },
          "address"_a, "The device whose memory an address belongs to.");
  nb::class_<cuda::Engine, interp::Engine<interp::Call>>(
      m, "CudaEngine",
      "Runs a program on CUDA devices of this process; buffers of the "
      "host are copied.")
      .def(nb::new_(&make_cuda_engine<ir::Program>), "runtime"_a, "program"_a, "devices"_a, "slots"_a = 0,
           "slot_bytes"_a = 0, "timeout"_a = 30.0)
      .def(nb::new_(&make_cuda_engine<ir::direct::Program>), "runtime"_a, "program"_a, "devices"_a, "slots"_a = 0,
           "slot_bytes"_a = 0, "timeout"_a = 30.0, "Of a proven one-sided program.")
      .def_prop_ro("devices", &cuda::Engine::devices)
      .def_prop_ro("slots", [](const cuda::Engine& engine) { return engine.geometry().slots; })
      .def_prop_ro("slot_bytes", [](const cuda::Engine& engine) { return engine.geometry().slot_bytes; })
      .def("device_of", &cuda::Engine::device_of, "rank"_a, "The device of a rank.")
      .def_prop_ro(
          "copies", [](const cuda::Engine& engine) { return copies_of(engine.launcher()); }, kCopies)
      .def(
          "time_graph",
          [](cuda::Engine& engine, const std::vector<std::optional<ConstBytes>>& inputs,
             const std::vector<std::optional<Bytes>>& outputs, std::size_t count, std::string_view dtype,
             const Operation& op, std::uint32_t warmup, std::uint32_t iterations) {
            const CallBuffers buffers(engine.plan().collective, inputs, outputs, count, dtype, op);
            return without_gil([&] { return engine.time_graph(buffers.call(), warmup, iterations, interrupted); });
          },
          "inputs"_a, "outputs"_a, "count"_a, "dtype"_a, "op"_a, "warmup"_a, "iterations"_a,
          "As `time`, with all iterations in one CUDA graph.")
      .def("enqueue", &enqueue, "inputs"_a, "outputs"_a, "count"_a, "dtype"_a, "op"_a, "streams"_a,
           "Puts a call on one stream per device. Buffers are addresses, one per rank, 0 where there is none.")
      .def("synchronize", [](cuda::Engine& engine) { without_gil([&] { return engine.synchronize(interrupted); }); });
  nb::class_<Nccl>(m, "Nccl", "NCCL, loaded by name.")
      .def(nb::new_([](const std::vector<std::string>& libraries) {
             return std::const_pointer_cast<Nccl>(unwrap(Nccl::open(libraries)));
           }),
           "libraries"_a)
      .def_prop_ro("version", &Nccl::version, "10000 * major + 100 * minor + patch.")
      .def("new_id", &new_window_id, "An id that one rank makes and with which all ranks join.");
  nb::class_<Windows>(m, "CudaWindows", "Memory that all ranks reach through symmetric windows of NCCL.")
      .def(nb::new_(&join_windows), "nccl"_a, "runtime"_a, "device"_a, "id"_a, "rank"_a, "ranks"_a, "timeout"_a)
      .def_prop_ro("has_switch", &Windows::has_switch, "Whether a switch reaches the windows of all ranks at once.")
      .def(
          "probe", [](Windows& windows) { without_gil([&] { return windows.probe(); }); },
          "Collective: makes a small window, to check that windows work.");
  nb::class_<Proxy>(m, "CudaProxy", "The thread that carries messages of kernels to and from other hosts.")
      .def("describe", &Proxy::describe, nb::call_guard<nb::gil_scoped_release>())
      .def(
          "close",
          [](Proxy& proxy) {
            const nb::gil_scoped_release release;
            proxy.close();
          },
          "Ends the thread and its connections. Calls that still run are stopped.");
  m.def("make_cuda_proxy", &make_proxy, nb::sig("def make_cuda_proxy(joined: object) -> CudaProxy | None"), "joined"_a,
        "None if all ranks of the communicator are on one host.");
  nb::class_<RankEngine>(m, "CudaRankEngine",
                         "Runs one rank of a program on a device; the other ranks run in other processes.")
      .def(nb::new_(&make_rank_engine<ir::Program>), "runtime"_a, "program"_a, "rank"_a, "device"_a, "slots"_a = 0,
           "slot_bytes"_a = 0, "timeout"_a = 30.0, "windows"_a.none() = nb::none(), "proxy"_a.none() = nb::none())
      .def(nb::new_(&make_rank_engine<ir::direct::Program>), "runtime"_a, "program"_a, "rank"_a, "device"_a,
           "slots"_a = 0, "slot_bytes"_a = 0, "timeout"_a = 30.0, "windows"_a.none() = nb::none(),
           "proxy"_a.none() = nb::none())
      .def(
          "handle", [](const RankEngine& engine) { return bytes_of(unwrap(engine.handle())); },
          "The data that other ranks need to access the memory of this one.")
      .def(
          "connect",
          [](RankEngine& engine, const std::vector<nb::bytes>& handles) {
            const std::vector<cuda::ArenaHandle> copies = handles_of(handles);
            without_gil([&] { return engine.connect(copies, interrupted); });
          },
          "handles"_a, "The handles of all ranks; none may enqueue before all have connected.")
      .def(
          "lacks_room",
          [](RankEngine& engine, std::size_t count, std::string_view dtype) {
            return unwrap(engine.lacks_room(count, model::parse_data_type(dtype).value()));
          },
          "count"_a, "dtype"_a, "Whether a call of a one-sided program needs a larger room, on all ranks the same.")
      .def(
          "make_room",
          [](RankEngine& engine, std::size_t count, std::string_view dtype) {
            const model::DataType type = model::parse_data_type(dtype).value();
            return bytes_of(without_gil([&] { return engine.make_room(count, type); }));
          },
          "count"_a, "dtype"_a, "The data that other ranks need to access the new room of this one.")
      .def(
          "share",
          [](RankEngine& engine, const std::vector<nb::bytes>& rooms) {
            const std::vector<cuda::ArenaHandle> copies = handles_of(rooms);
            without_gil([&] { return engine.share(copies); });
          },
          "rooms"_a, "The rooms of all ranks.")
      .def("use_rooms", &RankEngine::use_rooms, "The rooms that all ranks have shared: calls use them from now on.")
      .def(
          "enqueue",
          [](RankEngine& engine, std::uintptr_t input, std::uintptr_t output, std::size_t count, std::string_view dtype,
             const Operation& op, std::uintptr_t stream) {
            const Reduction reduction = parse_reduction(dtype, op);
            without_gil([&] {
              return engine.enqueue(reinterpret_cast<const void*>(input), reinterpret_cast<void*>(output), count,
                                    reduction.type, reduction.op, reduction.factor(), reinterpret_cast<void*>(stream));
            });
          },
          "input"_a, "output"_a, "count"_a, "dtype"_a, "op"_a, "stream"_a,
          "Puts a call of this rank on a stream. Buffers are addresses, 0 where there is none.")
      .def("synchronize", [](RankEngine& engine) { without_gil([&] { return engine.synchronize(interrupted); }); })
      .def_prop_ro(
          "copies", [](const RankEngine& engine) { return copies_of(engine.launcher()); }, kCopies)
      .def("disconnect", &RankEngine::disconnect, "Unmaps the memory of the other ranks. No call may follow.")
      .def("abort", &RankEngine::abort);
  m.def(
      "keep_until_exit", [](nb::pointer_and_handle<RankEngine> engine) { engine.h.inc_ref(); }, "engine"_a,
      "Keeps an engine, and so its memory, until the process ends.");
  m.def("describe_dlpack", &describe_dlpack,
        nb::sig("def describe_dlpack(capsule: object) -> tuple[int, tuple[int, ...], int, int, int, bool]"),
        "capsule"_a, "Address, shape, kind and bits of the type, device, and whether it is contiguous.");
}

}  // namespace gc3::bindings
