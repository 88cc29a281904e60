// Functions that users call: a call with arguments that they do not take is told by GC3.
#include <nanobind/nanobind.h>
#include <structmember.h>

#include <cstddef>

#include "convert.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace gc3::bindings {
namespace {

// Passes every call on. A wrapper in Python would take time in each call, and would stand between a function and the
// frame of its caller, in which some look for the user's line.
struct Public {
  PyObject head;
  vectorcallfunc call;
  PyObject* function;
  PyObject* tell;        // (function, arguments, arguments by name, exception) -> the exception to raise
  PyObject* attributes;  // its __dict__
  PyObject* references;  // weak ones
};

Public& public_of(PyObject* self) { return *reinterpret_cast<Public*>(self); }

void tell_of(const Public& self, PyObject* const* args, Py_ssize_t given, PyObject* names) {
  try {
    nb::python_error problem;
    const nb::object all = nb::steal(PyTuple_New(given));
    for (Py_ssize_t i = 0; i < given; ++i) PyTuple_SetItem(all.ptr(), i, nb::borrow(args[i]).release().ptr());
    nb::dict named;
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_Size(names); ++i) {
      named[nb::handle(PyTuple_GetItem(names, i))] = nb::handle(args[given + i]);
    }
    const nb::object told = nb::handle(self.tell)(nb::handle(self.function), all, named, problem.value());
    if (told.is(problem.value())) {
      problem.restore();  // with its context, which PyErr_SetObject replaces
    } else {
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(told.ptr())), told.ptr());
    }
  } catch (nb::python_error& raised) {
    raised.restore();
  }
}

PyObject* call_public(PyObject* self, PyObject* const* args, std::size_t given, PyObject* names) {
  PyObject* const result = PyObject_Vectorcall(public_of(self).function, args, given, names);
  if (result == nullptr && PyErr_ExceptionMatches(PyExc_Exception) != 0) {
    tell_of(public_of(self), args, PyVectorcall_NARGS(given), names);
  }
  return result;
}

PyObject* bind_public_to(PyObject* self, PyObject* object, PyObject* /*type*/) {
  static PyObject* const method = nb::object(nb::module_::import_("types").attr("MethodType")).release().ptr();
  if (object != nullptr && object != Py_None) return PyObject_CallFunctionObjArgs(method, self, object, nullptr);
  Py_INCREF(self);
  return self;
}

PyObject* repr_of_public(PyObject* self) { return PyObject_Repr(public_of(self).function); }

// For pickle: the name by which the module has it.
PyObject* reduce_public(PyObject* self, PyObject* /*unused*/) { return PyObject_GetAttrString(self, "__qualname__"); }

int traverse_public(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(public_of(self).function);
  Py_VISIT(public_of(self).tell);
  Py_VISIT(public_of(self).attributes);
  return 0;
}

int clear_public(PyObject* self) {
  Py_CLEAR(public_of(self).function);
  Py_CLEAR(public_of(self).tell);
  Py_CLEAR(public_of(self).attributes);
  return 0;
}

void destroy_public(PyObject* self) {
  PyTypeObject* const type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  PyObject_ClearWeakRefs(self);
  clear_public(self);
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

template <class Function>
void* slot(Function function) {
  return reinterpret_cast<void*>(function);
}

PyObject* make_public_type() {
  static PyMemberDef members[] = {
      {"__vectorcalloffset__", T_PYSSIZET, offsetof(Public, call), READONLY, nullptr},
      {"__dictoffset__", T_PYSSIZET, offsetof(Public, attributes), READONLY, nullptr},
      {"__weaklistoffset__", T_PYSSIZET, offsetof(Public, references), READONLY, nullptr},
      {nullptr, 0, 0, 0, nullptr},
  };
  static PyGetSetDef properties[] = {
      {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr},
  };
  static PyMethodDef methods[] = {{"__reduce__", reduce_public, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
  PyType_Slot slots[] = {
      {Py_tp_call, slot(PyVectorcall_Call)},
      {Py_tp_descr_get, slot(bind_public_to)},
      {Py_tp_repr, slot(repr_of_public)},
      {Py_tp_traverse, slot(traverse_public)},
      {Py_tp_clear, slot(clear_public)},
      {Py_tp_dealloc, slot(destroy_public)},
      {Py_tp_members, members},
      {Py_tp_getset, properties},
      {Py_tp_methods, methods},
      {0, nullptr},
  };
  // The interpreter takes a short way to methods that are descriptors of an immutable type.
  constexpr unsigned flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_METHOD_DESCRIPTOR |
                             Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_IMMUTABLETYPE;
  PyType_Spec spec{"gc3._core.Public", sizeof(Public), 0, flags, slots};
  return PyType_FromSpec(&spec);
}

nb::object make_public(nb::handle function, nb::handle tell) {
  static PyObject* const type = make_public_type();
  if (type == nullptr) throw nb::python_error();
  const nb::object made = nb::steal(PyType_GenericAlloc(reinterpret_cast<PyTypeObject*>(type), 0));
  if (!made.is_valid()) throw nb::python_error();
  public_of(made.ptr()).call = call_public;
  public_of(made.ptr()).function = nb::borrow(function).release().ptr();
  public_of(made.ptr()).tell = nb::borrow(tell).release().ptr();
  return nb::module_::import_("functools").attr("update_wrapper")(made, function);
}

}  // namespace

void bind_public(nb::module_& m) {
  m.def("public", &make_public, "function"_a, "tell"_a,
        nb::sig("def public(function: object, tell: collections.abc.Callable[..., BaseException]) -> typing.Any"),
        "Returns the same function, which raises what `tell` returns where `function` raises an exception.");
  m.def(
      "refuse_to_construct",
      [](nb::handle type, const nb::object& refuse) {
        nb::cpp_function_def(
            [refuse](nb::handle, const nb::args& given, const nb::kwargs& named) { refuse(*given, **named); },
            nb::scope(type), nb::name("__init__"), nb::is_method());
      },
      "type"_a, "refuse"_a,
      nb::sig("def refuse_to_construct(type: type, refuse: collections.abc.Callable[..., None]) -> None"),
      "Lets a class without a constructor call `refuse`, which raises an error.");
}

}  // namespace gc3::bindings
