#pragma once

#include <nanobind/nanobind.h>

// Functions of CPython that its limited API, and so a module of the stable ABI, does not have: the same by attributes.
// They serve wheels for several versions of Python; a module for one version calls CPython's own, which take less time.
#ifdef Py_LIMITED_API
namespace gc3::bindings {

inline PyFrameObject* PyFrame_GetBack(PyFrameObject* frame) {
  static PyObject* const name = PyUnicode_InternFromString("f_back");
  PyObject* const back = PyObject_GetAttr(reinterpret_cast<PyObject*>(frame), name);
  if (back == nullptr) throw nanobind::python_error();
  if (back != Py_None) return reinterpret_cast<PyFrameObject*>(back);
  Py_DECREF(back);
  return nullptr;
}

inline int PyFrame_GetLasti(PyFrameObject* frame) {
  static PyObject* const name = PyUnicode_InternFromString("f_lasti");
  const nanobind::object at = nanobind::steal(PyObject_GetAttr(reinterpret_cast<PyObject*>(frame), name));
  if (!at.is_valid()) throw nanobind::python_error();
  return nanobind::cast<int>(at);
}

inline PyObject* PyContextVar_New(const char* name, PyObject* /*initial*/) {
  return nanobind::module_::import_("contextvars").attr("ContextVar")(name).release().ptr();
}

inline int PyContextVar_Get(PyObject* variable, PyObject* otherwise, PyObject** value) {
  static PyObject* const name = PyUnicode_InternFromString("get");
  *value = PyObject_CallMethodObjArgs(variable, name, otherwise, nullptr);
  return *value == nullptr ? -1 : 0;
}

inline PyObject* PyContextVar_Set(PyObject* variable, PyObject* value) {
  return PyObject_CallMethod(variable, "set", "O", value);
}

inline int PyContextVar_Reset(PyObject* variable, PyObject* token) {
  PyObject* const none = PyObject_CallMethod(variable, "reset", "O", token);
  Py_XDECREF(none);
  return none == nullptr ? -1 : 0;
}

}  // namespace gc3::bindings
#endif
