#include "bind/draw_arguments.hpp"

namespace sharpwave::bind {

const Names& names() {
  static const Names all;
  return all;
}

bool is_true(PyObject* object, const char* name) {
  const int truth = is_given(object) ? PyObject_IsTrue(object) : 0;
  if (truth < 0) {
    PyErr_Clear();
    throw TypeError(std::string(name) + " must be true or false, got " + Py_TYPE(object)->tp_name);
  }
  return truth == 1;
}

std::optional<std::uint64_t> as_seed(PyObject* object) {
  if (!is_given(object)) return std::nullopt;
  if (PyBool_Check(object) || !PyIndex_Check(object)) {
    throw TypeError(std::string("seed must be an integer or None, got ") +
                    Py_TYPE(object)->tp_name);
  }
  const Ref index = Ref::take(PyNumber_Index(object));
  const std::uint64_t seed = PyLong_AsUnsignedLongLong(index.get());
  if (PyErr_Occurred()) {
    PyErr_Clear();
    throw std::invalid_argument("seed must be from 0 to 2**64 - 1");
  }
  return seed;
}

Ref spec_of(PyObject* object, const char* name, Py_ssize_t size) {
  Ref spec(PyObject_GetAttr(object, names().spec));
  PyErr_Clear();
  if (spec.get() == Py_None) return Ref();
  if (!spec || !PyTuple_Check(spec.get()) || PyTuple_GET_SIZE(spec.get()) != size) {
    throw TypeError(std::string(name) + " must be a sharpwave " + name + ", got " +
                    Py_TYPE(object)->tp_name);
  }
  return spec;
}

void read_view(PyObject* spec, const Replay& replay, BatchShape* shape, Ref* keep) {
  int kind = 0;
  int pad = 0;
  int cross = 0;
  int arrivals = 0;
  int discounts = 0;
  PyObject* fields = nullptr;
  View& view = shape->view;
  if (!PyArg_ParseTuple(spec, "iIdIIIipppO", &kind, &view.n, &view.gamma, &view.length,
                        &view.burn_in, &view.stride, &pad, &cross, &arrivals, &discounts,
                        &fields)) {
    throw PythonError();
  }
  if (kind < 0 || kind > static_cast<int>(View::Kind::sequence) || pad < 0 ||
      pad > static_cast<int>(View::Pad::whole)) {
    throw TypeError("view must be a sharpwave view");
  }
  view.kind = static_cast<View::Kind>(kind);
  view.pad = static_cast<View::Pad>(pad);
  view.cross = cross != 0;
  view.arrivals = arrivals != 0;
  shape->discounts = discounts != 0;
  if (fields != Py_None) {
    if (!PyTuple_CheckExact(fields)) {
      throw TypeError(std::string("fields must be a tuple of names, got ") +
                      Py_TYPE(fields)->tp_name);
    }
    *keep = Ref::borrow(fields);
    shape->fields = fields;
  }
  if (view.needs_neighbors() && replay.options().n_streams == 0) {
    throw std::invalid_argument(
        "this view needs the steps of each environment in order: make the buffer with n_envs= or "
        "for_env()");
  }
  if (view.arrivals) {
    const auto& all = replay.schema().fields;
    const auto count = [&](Role role) {
      return std::count_if(all.begin(), all.end(), [=](const Field& f) { return f.role == role; });
    };
    if (count(Role::obs) == 0 || count(Role::obs) != count(Role::next_obs)) {
      throw std::invalid_argument("arrivals need the fields obs and next_obs");
    }
    for (const Field& field : all) {
      const std::string name = field.name.substr(0, field.name.find('.'));
      if (name == "prev_actions" || name == "is_last" || name == "is_terminal") {
        throw std::invalid_argument("arrivals have an entry of their own '" + name +
                                    "', which is a field of the buffer");
      }
    }
  }
  const int reward = replay.schema().find(Role::reward);
  if (view.kind == View::Kind::n_step && reward >= 0) {
    const DType dtype = replay.schema().fields[static_cast<std::size_t>(reward)].dtype;
    if (dtype != DType::float32 && dtype != DType::float64) {
      throw std::invalid_argument(std::string("NStep needs rewards of float32 or float64, got ") +
                                  name_of(dtype));
    }
  }
}

Selector read_selector(PyObject* spec) {
  int kind = 0;
  unsigned long long window = 0;
  unsigned int fresh = 0;
  if (!PyArg_ParseTuple(spec, "iKI", &kind, &window, &fresh)) throw PythonError();
  const int last = static_cast<int>(fresh > 0 ? Selector::Kind::none : Selector::Kind::priority);
  if (kind < 0 || kind > last) throw TypeError("selector must be a sharpwave selector");
  return {static_cast<Selector::Kind>(kind), window, fresh};
}

void check_fresh(std::uint32_t length, const View& view, const Replay& replay) {
  if (replay.options().n_streams == 0) {
    throw std::invalid_argument(
        "Fresh needs the steps of each environment in order: make the buffer with n_envs= or "
        "for_env()");
  }
  if (view.kind == View::Kind::n_step || view.rows() != length) {
    throw std::invalid_argument("Fresh(" + std::to_string(length) +
                                ") needs a view with windows of as many rows, got one of " +
                                std::to_string(view.rows()));
  }
  if (view.burn_in > 0 || view.stride > 1 || view.pad != View::Pad::none) {
    throw std::invalid_argument("Fresh needs a view without burn_in, stride and pad");
  }
}

}  // namespace sharpwave::bind
