#include <nanobind/nanobind.h>

#include <new>
#include <stdexcept>

#include "convert.h"

namespace nb = nanobind;
using namespace gc3::bindings;

// Raises an error of gc3 that Python makes.
static void raise(const char* module, const char* function, const nb::object& about) {
  try {
    const nb::object made = nb::module_::import_(module).attr(function);
    const nb::object error = about.is_valid() ? made(about) : made();
    PyErr_SetObject(error.type().ptr(), error.ptr());
  } catch (nb::python_error& raised) {
    raised.restore();  // a signal handler's, such as that of Ctrl-C, which came while C++ ran
  }
}

NB_MODULE(_core, m) {
  // A communicator may still be referenced at exit, for example by a daemon thread. That is no defect to warn users of.
  nb::set_leak_warnings(false);
  m.doc() = "The compiled core of gc3. Use the `gc3` package; this module is its implementation.";
  m.attr("VERSION") = GC3_VERSION;
  bind_base(m);
  bind_public(m);
  bind_model(m);
  bind_ir(m);
  bind_direct(m);
  bind_compiler(m);
  bind_compute(m);
  bind_relative(m);
  bind_verify(m);
  bind_sim(m);
  bind_synth(m);
  bind_runtime(m);
  bind_select(m);
  bind_processes(m);
  bind_cuda(m);
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const DiagnosticError& e) {
      // gc3.errors maps kinds to exception classes, so C++ does not need to know the classes.
      raise("gc3.errors", "from_diagnostic", nb::cast(e.problem()));
    } catch (const std::bad_alloc&) {
      raise("gc3.support.public", "out_of_memory", {});
    } catch (const std::length_error&) {  // a container that no memory could hold
      raise("gc3.support.public", "out_of_memory", {});
    }
  });
}
