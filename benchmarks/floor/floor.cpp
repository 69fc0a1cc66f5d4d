// What the machine allows: each function does only the work that an operation cannot avoid (reach
// the arguments, move the bytes, allocate the outputs), without checks, locks, casts or options.
// Compiled by the benchmarks for the machine that they run on.
//
// A record is one transition: obs 17, next_obs 17, action 6, reward (float32), two flags.

#define PY_SSIZE_T_CLEAN
#define NPY_NO_DEPRECATED_API NPY_2_0_API_VERSION
#include <Python.h>
#include <numpy/arrayobject.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace {

constexpr npy_intp kObs = 17;
constexpr npy_intp kAction = 6;
constexpr npy_intp kTile = 64;

struct __attribute__((packed)) Record {
  float obs[kObs];
  float next_obs[kObs];
  float action[kAction];
  float reward;
  uint8_t terminated;
  uint8_t truncated;
};
static_assert(sizeof(Record) == 166);

PyArrayObject* array(PyObject* object) { return reinterpret_cast<PyArrayObject*>(object); }

template <typename T>
T* data(PyObject* object) {
  return static_cast<T*>(PyArray_DATA(array(object)));
}

npy_intp size(PyObject* object) { return PyArray_SIZE(array(object)); }
npy_intp dim(PyObject* object, int axis) { return PyArray_DIM(array(object), axis); }

PyObject* empty_array(int type, npy_intp a) { return PyArray_SimpleNew(1, &a, type); }
PyObject* empty_array(int type, npy_intp a, npy_intp b) {
  npy_intp shape[] = {a, b};
  return PyArray_SimpleNew(2, shape, type);
}

uint64_t random_state = 0x9e3779b97f4a7c15u;
npy_intp draw(npy_intp below) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return static_cast<npy_intp>((static_cast<unsigned __int128>(random_state) * below) >> 64);
}

npy_intp cursor = 0;
npy_intp advance(npy_intp capacity, npy_intp n) {
  const npy_intp at = cursor + n <= capacity ? cursor : 0;
  cursor = at + n;
  return at;
}

// call(...): the cost of a call with its arguments, and nothing else.
PyObject* call(PyObject*, PyObject* const*, Py_ssize_t) { Py_RETURN_NONE; }

// push(records, obs, action, reward, terminated, truncated, next_obs)
PyObject* push(PyObject*, PyObject* const* args, Py_ssize_t) {
  Record* records = data<Record>(args[0]);
  Record& record = records[advance(size(args[0]) / sizeof(Record), 1)];
  std::memcpy(record.obs, data<float>(args[1]), sizeof record.obs);
  std::memcpy(record.action, data<float>(args[2]), sizeof record.action);
  record.reward = static_cast<float>(PyFloat_AS_DOUBLE(args[3]));
  record.terminated = args[4] == Py_True;
  record.truncated = args[5] == Py_True;
  std::memcpy(record.next_obs, data<float>(args[6]), sizeof record.next_obs);
  Py_RETURN_NONE;
}

// push_batch(records, obs, next_obs, actions, rewards, terminated, truncated)
PyObject* push_batch(PyObject*, PyObject* const* args, Py_ssize_t) {
  const npy_intp n = size(args[4]);
  Record* out = data<Record>(args[0]) + advance(size(args[0]) / sizeof(Record), n);
  const float* obs = data<float>(args[1]);
  const float* next_obs = data<float>(args[2]);
  const float* actions = data<float>(args[3]);
  const float* rewards = data<float>(args[4]);
  const uint8_t* terminated = data<uint8_t>(args[5]);
  const uint8_t* truncated = data<uint8_t>(args[6]);
  for (npy_intp i = 0; i < n; ++i) {
    std::memcpy(out[i].obs, obs + i * kObs, sizeof out[i].obs);
    std::memcpy(out[i].next_obs, next_obs + i * kObs, sizeof out[i].next_obs);
    std::memcpy(out[i].action, actions + i * kAction, sizeof out[i].action);
    out[i].reward = rewards[i];
    out[i].terminated = terminated[i];
    out[i].truncated = truncated[i];
  }
  Py_RETURN_NONE;
}

struct Batch {
  float *obs, *next_obs, *actions, *rewards;
  uint8_t *terminated, *truncated;
};

void copy_out(const Record& in, const Batch& out, npy_intp i) {
  std::memcpy(out.obs + i * kObs, in.obs, sizeof in.obs);
  std::memcpy(out.next_obs + i * kObs, in.next_obs, sizeof in.next_obs);
  std::memcpy(out.actions + i * kAction, in.action, sizeof in.action);
  out.rewards[i] = in.reward;
  out.terminated[i] = in.terminated;
  out.truncated[i] = in.truncated;
}

void prefetch(const Record& record) {
  const char* bytes = reinterpret_cast<const char*>(&record);
  for (size_t offset = 0; offset < sizeof(Record); offset += 64) {
    __builtin_prefetch(bytes + offset);
  }
  __builtin_prefetch(bytes + sizeof(Record) - 1);
}

PyObject* new_batch(npy_intp n, Batch& batch) {
  PyObject* fields[] = {empty_array(NPY_FLOAT32, n, kObs),
                        empty_array(NPY_FLOAT32, n, kObs),
                        empty_array(NPY_FLOAT32, n, kAction),
                        empty_array(NPY_FLOAT32, n),
                        empty_array(NPY_UINT8, n),
                        empty_array(NPY_UINT8, n)};
  batch = {data<float>(fields[0]), data<float>(fields[1]),   data<float>(fields[2]),
           data<float>(fields[3]), data<uint8_t>(fields[4]), data<uint8_t>(fields[5])};
  PyObject* out = PyTuple_New(6);
  for (int i = 0; i < 6; ++i) PyTuple_SET_ITEM(out, i, fields[i]);
  return out;
}

// sample(records, batch_size): uniform rows into six fresh arrays, one tile prefetched ahead. The
// GIL is released for large batches, where waiting for it again does not show.
PyObject* sample(PyObject*, PyObject* const* args, Py_ssize_t) {
  const Record* records = data<Record>(args[0]);
  const npy_intp capacity = size(args[0]) / sizeof(Record);
  const npy_intp n = PyLong_AsSsize_t(args[1]);
  Batch batch;
  PyObject* out = new_batch(n, batch);
  uint32_t* rows = new uint32_t[n];
  for (npy_intp i = 0; i < n; ++i) rows[i] = static_cast<uint32_t>(draw(capacity));
  PyThreadState* released = n > 1024 ? PyEval_SaveThread() : nullptr;
  for (npy_intp i = 0; i < kTile && i < n; ++i) prefetch(records[rows[i]]);
  for (npy_intp start = 0; start < n; start += kTile) {
    const npy_intp end = start + kTile < n ? start + kTile : n;
    for (npy_intp i = end; i < end + kTile && i < n; ++i) prefetch(records[rows[i]]);
    for (npy_intp i = start; i < end; ++i) copy_out(records[rows[i]], batch, i);
  }
  if (released != nullptr) PyEval_RestoreThread(released);
  delete[] rows;
  return out;
}

// sample_sequences(records, batch_size, length): runs of neighboring records; episode ends are not
// looked for.
PyObject* sample_sequences(PyObject*, PyObject* const* args, Py_ssize_t) {
  const Record* records = data<Record>(args[0]);
  const npy_intp capacity = size(args[0]) / sizeof(Record);
  const npy_intp n = PyLong_AsSsize_t(args[1]);
  const npy_intp length = PyLong_AsSsize_t(args[2]);
  Batch batch;
  PyObject* out = new_batch(n * length, batch);
  for (npy_intp i = 0; i < n; ++i) {
    const Record* run = records + draw(capacity - length + 1);
    for (npy_intp t = 0; t < length; ++t) {
      if (t + 8 < length) prefetch(run[t + 8]);
      copy_out(run[t], batch, i * length + t);
    }
  }
  return out;
}

// push_images(obs_column, next_obs_column, obs, next_obs)
PyObject* push_images(PyObject*, PyObject* const* args, Py_ssize_t) {
  const npy_intp capacity = dim(args[0], 0);
  const npy_intp bytes = size(args[0]) / capacity;
  const npy_intp at = advance(capacity, 1) * bytes;
  std::memcpy(data<char>(args[0]) + at, data<char>(args[2]), bytes);
  std::memcpy(data<char>(args[1]) + at, data<char>(args[3]), bytes);
  Py_RETURN_NONE;
}

// sample_images(obs_column, next_obs_column, batch_size)
PyObject* sample_images(PyObject*, PyObject* const* args, Py_ssize_t) {
  const npy_intp capacity = dim(args[0], 0);
  const npy_intp bytes = size(args[0]) / capacity;
  const npy_intp n = PyLong_AsSsize_t(args[2]);
  PyObject* obs = empty_array(NPY_UINT8, n, bytes);
  PyObject* next_obs = empty_array(NPY_UINT8, n, bytes);
  for (npy_intp i = 0; i < n; ++i) {
    const npy_intp at = draw(capacity) * bytes;
    std::memcpy(data<char>(obs) + i * bytes, data<char>(args[0]) + at, bytes);
    std::memcpy(data<char>(next_obs) + i * bytes, data<char>(args[1]) + at, bytes);
  }
  return Py_BuildValue("NN", obs, next_obs);
}

// gae(rewards, values, dones, last_values, gamma, lam): time-major [T, N] float32
PyObject* gae(PyObject*, PyObject* const* args, Py_ssize_t) {
  const npy_intp steps = dim(args[0], 0), envs = dim(args[0], 1);
  const float *rewards = data<float>(args[0]), *values = data<float>(args[1]);
  const float* dones = data<float>(args[2]);
  const float gamma = static_cast<float>(PyFloat_AS_DOUBLE(args[4]));
  const float gamma_lambda = gamma * static_cast<float>(PyFloat_AS_DOUBLE(args[5]));
  PyObject* advantages_array = empty_array(NPY_FLOAT32, steps, envs);
  PyObject* returns_array = empty_array(NPY_FLOAT32, steps, envs);
  float* __restrict advantages = data<float>(advantages_array);
  float* __restrict returns = data<float>(returns_array);
  float* __restrict trace = new float[envs]();
  const float* next_values = data<float>(args[3]);
  for (npy_intp t = steps - 1; t >= 0; --t) {
#pragma GCC ivdep
    for (npy_intp e = 0; e < envs; ++e) {
      const npy_intp i = t * envs + e;
      const float alive = 1.0f - dones[i];
      const float delta = rewards[i] + gamma * alive * next_values[e] - values[i];
      trace[e] = delta + gamma_lambda * alive * trace[e];
      advantages[i] = trace[e];
      returns[i] = trace[e] + values[i];
    }
    next_values = values + t * envs;
  }
  delete[] trace;
  return Py_BuildValue("NN", advantages_array, returns_array);
}

// gae_trajectory(rewards, values, dones, last_value, gamma, lam): one trajectory, float64. What
// does not depend on the step after is worked out first, so that the recursion is one multiply-add
// long.
PyObject* gae_trajectory(PyObject*, PyObject* const* args, Py_ssize_t) {
  const npy_intp steps = size(args[0]);
  const double *rewards = data<double>(args[0]), *values = data<double>(args[1]);
  const double* dones = data<double>(args[2]);
  const double last_value = PyFloat_AS_DOUBLE(args[3]), gamma = PyFloat_AS_DOUBLE(args[4]);
  const double gamma_lambda = gamma * PyFloat_AS_DOUBLE(args[5]);
  PyObject* advantages_array = empty_array(NPY_FLOAT64, steps);
  PyObject* returns_array = empty_array(NPY_FLOAT64, steps);
  double* __restrict advantages = data<double>(advantages_array);
  double* __restrict decays = data<double>(returns_array);
  for (npy_intp t = 0; t < steps - 1; ++t) {
    const double alive = 1 - dones[t];
    advantages[t] = rewards[t] + gamma * alive * values[t + 1] - values[t];
    decays[t] = gamma_lambda * alive;
  }
  advantages[steps - 1] =
      rewards[steps - 1] + gamma * (1 - dones[steps - 1]) * last_value - values[steps - 1];
  for (npy_intp t = steps - 2; t >= 0; --t) advantages[t] += decays[t] * advantages[t + 1];
  for (npy_intp t = 0; t < steps; ++t) decays[t] = advantages[t] + values[t];
  return Py_BuildValue("NN", advantages_array, returns_array);
}

// vtrace(log_rhos, rewards, values, dones, bootstrap, gamma): time-major [T, N] float32, clips of 1
PyObject* vtrace(PyObject*, PyObject* const* args, Py_ssize_t) {
  const npy_intp steps = dim(args[0], 0), envs = dim(args[0], 1);
  const float *log_rhos = data<float>(args[0]), *rewards = data<float>(args[1]);
  const float *values = data<float>(args[2]), *dones = data<float>(args[3]);
  const float gamma = static_cast<float>(PyFloat_AS_DOUBLE(args[5]));
  PyObject* targets_array = empty_array(NPY_FLOAT32, steps, envs);
  PyObject* advantages_array = empty_array(NPY_FLOAT32, steps, envs);
  float* __restrict targets = data<float>(targets_array);
  float* __restrict advantages = data<float>(advantages_array);
  float* __restrict trace = new float[envs]();
  const float* next_values = data<float>(args[4]);
  for (npy_intp t = steps - 1; t >= 0; --t) {
#pragma GCC ivdep
    for (npy_intp e = 0; e < envs; ++e) {
      const npy_intp i = t * envs + e;
      const float ratio = std::exp(log_rhos[i]);
      const float rho = ratio < 1.0f ? ratio : 1.0f;
      const float discount = gamma * (1.0f - dones[i]);
      const float delta = rho * (rewards[i] + discount * next_values[e] - values[i]);
      advantages[i] = delta + rho * discount * trace[e];
      trace[e] = delta + discount * rho * trace[e];
      targets[i] = values[i] + trace[e];
    }
    next_values = values + t * envs;
  }
  delete[] trace;
  return Py_BuildValue("NN", targets_array, advantages_array);
}

// group_advantages(rewards, group_size): float64
PyObject* group_advantages(PyObject*, PyObject* const* args, Py_ssize_t) {
  const npy_intp n = size(args[0]), group = PyLong_AsSsize_t(args[1]);
  const double* rewards = data<double>(args[0]);
  PyObject* out_array = empty_array(NPY_FLOAT64, n);
  double* __restrict out = data<double>(out_array);
  for (npy_intp start = 0; start < n; start += group) {
    double sum = 0, squares = 0;
    for (npy_intp i = start; i < start + group; ++i) sum += rewards[i];
    const double mean = sum / group;
    for (npy_intp i = start; i < start + group; ++i) {
      squares += (rewards[i] - mean) * (rewards[i] - mean);
    }
    const double deviation = std::sqrt(squares / group);
    const double scale = deviation < 1e-8 ? 0 : 1 / deviation;
    for (npy_intp i = start; i < start + group; ++i) out[i] = (rewards[i] - mean) * scale;
  }
  return out_array;
}

// token_kl(log_p, log_q, seq_len): sum of log_p - log_q; token_kl_exp: sum of exp(d) - d - 1
template <bool kExp>
PyObject* token_kl_of(PyObject*, PyObject* const* args, Py_ssize_t) {
  const npy_intp length = PyLong_AsSsize_t(args[2]), n = size(args[0]) / length;
  const float *log_p = data<float>(args[0]), *log_q = data<float>(args[1]);
  PyObject* out = empty_array(NPY_FLOAT32, n);
  for (npy_intp s = 0; s < n; ++s) {
    float sum = 0;
    for (npy_intp i = s * length; i < (s + 1) * length; ++i) {
      const float d = log_p[i] - log_q[i];
      sum += kExp ? std::exp(-d) + d - 1.0f : d;
    }
    data<float>(out)[s] = sum;
  }
  return out;
}

// copy_sequences(list_of_uint32_arrays, total): the tokens, one after the other, with a position
// each
PyObject* copy_sequences(PyObject*, PyObject* const* args, Py_ssize_t) {
  const npy_intp total = PyLong_AsSsize_t(args[1]);
  PyObject* tokens = empty_array(NPY_UINT32, total);
  PyObject* positions = empty_array(NPY_UINT32, total);
  PyObject* mask = empty_array(NPY_UINT32, total);
  npy_intp at = 0;
  for (Py_ssize_t s = 0; s < PyList_GET_SIZE(args[0]); ++s) {
    PyObject* sequence = PyList_GET_ITEM(args[0], s);
    const npy_intp n = size(sequence);
    std::memcpy(data<uint32_t>(tokens) + at, data<uint32_t>(sequence), n * sizeof(uint32_t));
    for (npy_intp i = 0; i < n; ++i) data<uint32_t>(positions)[at + i] = static_cast<uint32_t>(i);
    for (npy_intp i = 0; i < n; ++i) data<uint32_t>(mask)[at + i] = 1;
    at += n;
  }
  return Py_BuildValue("NNN", tokens, mask, positions);
}

#define FLOOR_METHOD(name, function) \
  {name, reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)), METH_FASTCALL, nullptr}

PyMethodDef methods[] = {FLOOR_METHOD("call", call),
                         FLOOR_METHOD("push", push),
                         FLOOR_METHOD("push_batch", push_batch),
                         FLOOR_METHOD("sample", sample),
                         FLOOR_METHOD("sample_sequences", sample_sequences),
                         FLOOR_METHOD("push_images", push_images),
                         FLOOR_METHOD("sample_images", sample_images),
                         FLOOR_METHOD("gae", gae),
                         FLOOR_METHOD("gae_trajectory", gae_trajectory),
                         FLOOR_METHOD("vtrace", vtrace),
                         FLOOR_METHOD("group_advantages", group_advantages),
                         FLOOR_METHOD("token_kl", token_kl_of<false>),
                         FLOOR_METHOD("token_kl_exp", token_kl_of<true>),
                         FLOOR_METHOD("copy_sequences", copy_sequences),
                         {nullptr, nullptr, 0, nullptr}};

PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_floor", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__floor() {
  import_array();
  return PyModule_Create(&module);
}
