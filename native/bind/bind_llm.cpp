// Group advantages and token KL. Called positionally by src/sharpwave/primitives/llm/__init__.py,
// which documents them.
#include <array>
#include <utility>

#include "bind/bindings.hpp"
#include "bind/primitive_args.hpp"
#include "core/isa/kernels.hpp"

namespace sharpwave::bind {
namespace {

template <typename T>
const LlmKernelsOf<T>& llm_kernels() {
  if constexpr (std::is_same_v<T, float>)
    return kernels().llm.f32;
  else
    return kernels().llm.f64;
}

KlEstimator as_estimator(PyObject* object) {
  constexpr std::array<std::pair<const char*, KlEstimator>, 4> kNames = {{
      {"k1", KlEstimator::k1},
      {"k2", KlEstimator::k2},
      {"k3", KlEstimator::k3},
      {"weighted", KlEstimator::weighted},
  }};
  if (!PyUnicode_Check(object)) {
    throw TypeError(std::string("estimator must be a string, got ") + Py_TYPE(object)->tp_name);
  }
  for (const auto& [name, estimator] : kNames) {
    if (PyUnicode_CompareWithASCIIString(object, name) == 0) return estimator;
  }
  const Ref text = Ref::take(PyObject_Repr(object));
  const char* utf8 = PyUnicode_AsUTF8(text.get());
  if (utf8 == nullptr) throw PythonError();
  throw std::invalid_argument(
      std::string("estimator must be 'k1', 'k2', 'k3' or 'weighted', got ") + utf8);
}

double kl_work_ns(std::size_t tokens, KlEstimator estimator) {
  const bool has_exp = estimator == KlEstimator::k3 || estimator == KlEstimator::weighted;
  return (has_exp ? 1.5 : 0.4) * static_cast<double>(tokens);
}

// log_p, log_q and mask of one shape.
template <typename T>
struct KlArgs {
  ArrayArg<T> log_p, log_q;
  std::optional<FlagArg> mask;

  KlArgs(PyObject* p, const char* p_name, PyObject* q, const char* q_name, PyObject* mask_object)
      : log_p(p, p_name), log_q(q, q_name) {
    check_same_shape(log_q.array(), q_name, log_p.array(), p_name);
    if (mask_object == Py_None) return;
    mask.emplace(mask_object, "mask");
    check_same_shape(mask->array(), "mask", log_p.array(), p_name);
  }

  const std::uint8_t* mask_data() const { return mask ? mask->data() : nullptr; }
};

// log_probs_policy, log_probs_ref, estimator, mask
template <typename T>
PyObject* token_kl_of(PyObject* const* args) {
  const KlArgs<T> in(args[0], "log_probs_policy", args[1], "log_probs_ref", args[3]);
  const KlEstimator estimator = as_estimator(args[2]);
  double sum = 0;
  {
    const MaybeReleaseGil release(kl_work_ns(in.log_p.size(), estimator));
    sum = llm_kernels<T>().token_kl(in.log_p.data(), in.log_q.data(), in.mask_data(),
                                    in.log_p.size(), estimator);
  }
  return PyFloat_FromDouble(sum);
}

PyObject* compute_token_kl(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("compute_token_kl", nargs, 4);
    return all_float32({args[0], args[1]}) ? token_kl_of<float>(args) : token_kl_of<double>(args);
  });
}

// log_p, log_q, seq_len, estimator, mask, out
template <typename T>
PyObject* batch_token_kl_of(PyObject* const* args) {
  const KlArgs<T> in(args[0], "log_p", args[1], "log_q", args[4]);
  const std::size_t seq_len = as_size(args[2], "seq_len");
  const KlEstimator estimator = as_estimator(args[3]);
  if (seq_len == 0) throw std::invalid_argument("seq_len must be at least 1, got 0");
  const std::size_t size = in.log_p.size();
  if (size % seq_len != 0) {
    throw std::invalid_argument("log_p must hold a multiple of seq_len = " +
                                std::to_string(seq_len) + " tokens, got " + std::to_string(size));
  }
  const auto n_rows = static_cast<npy_intp>(size / seq_len);
  ArrayOut<T> out(args[5], "out", 1, &n_rows);
  if (args[5] != Py_None) {
    check_no_overlap(out.data(), static_cast<std::size_t>(n_rows) * sizeof(T),
                     {in.log_p.array(), in.log_q.array()});
  }
  {
    const MaybeReleaseGil release(kl_work_ns(size, estimator));
    const auto token_kl = llm_kernels<T>().token_kl;
    const std::uint8_t* mask = in.mask_data();
    for (std::size_t row = 0; row < static_cast<std::size_t>(n_rows); ++row) {
      const std::size_t start = row * seq_len;
      out.data()[row] =
          static_cast<T>(token_kl(in.log_p.data() + start, in.log_q.data() + start,
                                  mask == nullptr ? nullptr : mask + start, seq_len, estimator));
    }
  }
  return out.finish(in.log_p.torch());
}

PyObject* compute_batch_token_kl(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("compute_batch_token_kl", nargs, 6);
    return all_float32({args[0], args[1]}) ? batch_token_kl_of<float>(args)
                                           : batch_token_kl_of<double>(args);
  });
}

template <typename T>
PyObject* group_advantages_of(const ArrayArg<T>& rewards, std::size_t group_size) {
  ArrayOut<T> out(nullptr, "out", rewards.ndim(), rewards.shape());
  if (rewards.size() > 0) {
    const MaybeReleaseGil release(1.0 * static_cast<double>(rewards.size()));
    llm_kernels<T>().group_advantages(rewards.data(), rewards.size() / group_size, group_size,
                                      out.data());
  }
  return out.finish(rewards.torch());
}

template <typename T>
PyObject* one_group(PyObject* object) {
  const ArrayArg<T> rewards(object, "rewards");
  return group_advantages_of(rewards, rewards.size());
}

PyObject* compute_group_advantages(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("compute_group_advantages", nargs, 1);
    return all_float32({args[0]}) ? one_group<float>(args[0]) : one_group<double>(args[0]);
  });
}

template <typename T>
PyObject* many_groups(PyObject* const* args) {
  const ArrayArg<T> rewards(args[0], "rewards");
  const std::size_t group_size = as_size(args[1], "group_size");
  if (group_size == 0) throw std::invalid_argument("group_size must be at least 1, got 0");
  if (rewards.size() % group_size != 0) {
    throw std::invalid_argument(
        "rewards must hold a multiple of group_size = " + std::to_string(group_size) +
        " numbers, got " + std::to_string(rewards.size()));
  }
  return group_advantages_of(rewards, group_size);
}

PyObject* compute_batch_group_advantages(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  return guard([&] {
    check_nargs("compute_batch_group_advantages", nargs, 2);
    return all_float32({args[0]}) ? many_groups<float>(args) : many_groups<double>(args);
  });
}

PyMethodDef functions[] = {
    fast_function("compute_token_kl", compute_token_kl),
    fast_function("compute_batch_token_kl", compute_batch_token_kl),
    fast_function("compute_group_advantages", compute_group_advantages),
    fast_function("compute_batch_group_advantages", compute_batch_group_advantages),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

void bind_llm(PyObject* module) { add_functions(module, functions); }

}  // namespace sharpwave::bind
