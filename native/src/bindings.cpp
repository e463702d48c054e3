// The Python side of the executor: every check of shapes and ranges is made here or in isobit.backends.cpu.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "blocks.h"
#include "ceilings.h"
#include "cores.h"
#include "cpu.h"
#include "guard.h"
#include "pack.h"
#include "steps.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace isobit {
namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Ints = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using IntTable = nb::ndarray<const int32_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
using CacheArray = nb::ndarray<nb::ndim<5>, nb::c_contig, nb::device::cpu>;
using Matrix = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

const Kernels& require_kernels(const std::string& isa) {
  const Kernels* k = find_kernels(isa);
  if (k == nullptr) throw nb::value_error("unknown or unavailable instruction set");
  return *k;
}

std::vector<float> copy_of(const Floats& a) { return {a.data(), a.data() + a.size()}; }

Matrix new_matrix(size_t rows, size_t columns) {
  auto* data = new float[rows * columns + 1];
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return Matrix(data, {rows, columns}, owner);
}

// Calls `progress` at the first piece and from then on from time to time, and lets an interrupt of the user end the work.
WeightStore::Progress watcher(const std::optional<nb::callable>& progress) {
  using Clock = std::chrono::steady_clock;
  return [&progress, last = Clock::time_point()](size_t done, size_t total) mutable {
    const auto now = Clock::now();
    if (now - last < std::chrono::milliseconds(100)) return;
    last = now;
    nb::gil_scoped_acquire acquire;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (progress) (*progress)(done, total);
  };
}

// The packed weights of a model. The file's bytes are kept alive with them.
class Weights {
 public:
  explicit Weights(int threads) : store_(std::make_shared<WeightStore>(threads)) {}

  int add(Bytes raw, int ggml_id, int rows, int columns, bool pack, bool mapped) {
    const auto format = weight_format(ggml_id);
    if (!format) throw nb::value_error("weight type without kernels");
    if (row_bytes(*format, columns) * rows != raw.size()) throw nb::value_error("weight size");
    raws_.push_back(raw);
    return store_->add({raw.data(), raw.size()}, *format, rows, columns, pack, mapped);
  }
  void pack(std::optional<nb::callable> progress) {
    nb::gil_scoped_release release;
    store_->pack(watcher(progress));
  }
  size_t bytes() const { return store_->bytes(); }
  std::shared_ptr<const WeightStore> store() const { return store_; }

 private:
  std::shared_ptr<WeightStore> store_;
  std::vector<Bytes> raws_;
};

// An executor being built and used from Python.
class Session {
 public:
  Session(const Weights& weights, const std::string& isa, int threads)
      : executor_(weights.store(), require_kernels(isa), threads) {}

  void linear(int op, int out, int x, int weight, std::optional<Floats> bias, bool two_pass, bool first) {
    if (first) executor_.add_step(op, make_round(x, is_integer(executor_.weight(weight).format), two_pass));
    const int b = bias ? executor_.add_vector(copy_of(*bias)) : -1;
    executor_.add_step(op, make_linear(out, x, weight, b, two_pass));
  }

  Matrix forward(Ints tokens, Ints positions, Ints sequences, IntTable tables, Ints wanted, CacheArray keys,
                 CacheArray values, int logits, std::optional<nb::callable> observer) {
    const BatchView batch{static_cast<int>(tokens.size()),
                          tokens.data(),
                          positions.data(),
                          sequences.data(),
                          tables.data(),
                          static_cast<int>(tables.shape(1)),
                          {wanted.data(), wanted.size()}};
    const CacheView cache{static_cast<uint8_t*>(keys.data()), static_cast<uint8_t*>(values.data()),
                          keys.nbytes() / keys.shape(0), keys.itemsize() == 2};
    Executor::Observer watch;
    if (observer) {
      watch = [&](int op) {
        nb::gil_scoped_acquire acquire;
        (*observer)(op);
      };
    }
    {
      nb::gil_scoped_release release;
      executor_.forward(batch, cache, watch);
    }
    return rows(logits, static_cast<int>(wanted.size()));
  }

  // A copy of the first rows of a buffer.
  Matrix rows(int buffer, int count) {
    const Buffer& b = executor_.buffer(buffer);
    Matrix out = new_matrix(count, b.width);
    std::memcpy(out.data(), b.data.data(), sizeof(float) * count * b.width);
    return out;
  }

  Executor& executor() { return executor_; }

 private:
  Executor executor_;
};

void bind_session(nb::module_& m) {
  nb::class_<Weights>(m, "Weights")
      .def(nb::init<int>(), "threads"_a)
      .def("add", &Weights::add, "raw"_a, "ggml_id"_a, "rows"_a, "columns"_a, "pack"_a, "mapped"_a)
      .def("pack", &Weights::pack, "progress"_a.none())
      .def_prop_ro("bytes", &Weights::bytes);
  nb::class_<Session>(m, "Session")
      // A session reads its weights' file bytes: they live as long as it does.
      .def(nb::init<const Weights&, const std::string&, int>(), nb::keep_alive<1, 2>(), "weights"_a, "isa"_a,
           "threads"_a)
      .def("add_buffer",
           [](Session& s, int width, bool selected) { return s.executor().add_buffer(width, selected); })
      .def("add_vector", [](Session& s, const Floats& v) { return s.executor().add_vector(copy_of(v)); })
      .def("embed", [](Session& s, int op, int out, int w) { s.executor().add_step(op, make_embed(out, w)); })
      .def("rms_norm", [](Session& s, int op, int out, int x, int w, float eps,
                          int heads) { s.executor().add_step(op, make_rms_norm(out, x, w, eps, heads)); })
      .def("linear", &Session::linear, "op"_a, "out"_a, "x"_a, "weight"_a, "bias"_a.none(), "two_pass"_a,
           "first"_a)
      .def("rope_angles",
           [](Session& s, int op, int inv_freq, float mscale, int angles) {
             s.executor().add_step(op, make_rope_angles(inv_freq, mscale, angles));
           })
      .def("rope",
           [](Session& s, int op, int x, int heads, bool interleaved, int half, int angles) {
             s.executor().add_step(op, make_rope(x, heads, interleaved, half, angles));
           })
      .def("kv_write",
           [](Session& s, int op, int k, int v, int layer, int kv_heads, int head_dim) {
             s.executor().add_step(op, make_kv_write(k, v, layer, kv_heads, head_dim));
           })
      .def("attention",
           [](Session& s, int op, int out, int q, int layer, int heads, int kv_heads, int head_dim,
              float scale, int window, float softcap) {
             const AttentionShape shape{layer, heads, kv_heads, head_dim, scale, window, softcap};
             s.executor().add_step(op, make_attention(out, q, shape));
           })
      .def("gated", [](Session& s, int op, int out, int gate, int up,
                       bool gelu) { s.executor().add_step(op, make_gated(out, gate, up, gelu)); })
      .def("add",
           [](Session& s, int op, int out, int a, int b) { s.executor().add_step(op, make_add(out, a, b)); })
      .def("scale", [](Session& s, int op, int x, float f) { s.executor().add_step(op, make_scale(x, f)); })
      .def("softcap",
           [](Session& s, int op, int x, float c) { s.executor().add_step(op, make_softcap(x, c)); })
      .def("select_rows",
           [](Session& s, int op, int out, int x) { s.executor().add_step(op, make_select_rows(out, x)); })
      .def("check_finite", [](Session& s, int op, int x) { s.executor().add_step(op, make_check_finite(x)); })
      .def("forward", &Session::forward, "tokens"_a, "positions"_a, "sequences"_a, "tables"_a, "wanted"_a,
           "keys"_a, "values"_a, "logits"_a, "observer"_a.none())
      .def("rows", &Session::rows)
      .def("start_profile", [](Session& s) { s.executor().start_profile(); })
      // Per stage: the operations of its steps, and the seconds that its passes took.
      .def("profile", [](Session& s) {
        std::vector<std::pair<std::vector<int>, double>> stages;
        for (const Stage& stage : s.executor().stages()) {
          auto& [ops, seconds] = stages.emplace_back(std::vector<int>(), stage.seconds);
          for (const Step* step : stage.steps) ops.push_back(step->op);
        }
        return stages;
      });
}

Matrix apply_function(const std::string& isa, const std::string& name, Floats x) {
  const Kernels& k = require_kernels(isa);
  const std::map<std::string, ArrayKernel> functions = {
      {"exp", k.exp},   {"sigmoid", k.sigmoid}, {"silu", k.silu}, {"gelu", k.gelu},
      {"tanh", k.tanh}, {"sin", k.sin},         {"cos", k.cos},   {"log", k.log}};
  const auto found = functions.find(name);
  if (found == functions.end()) throw nb::value_error("unknown function");
  Matrix y = new_matrix(1, x.size());
  const FloatGuard guard;
  found->second(x.data(), y.data(), x.size());
  return y;
}

// IEEE mode of the calling thread as a context manager.
class IeeeMode {
 public:
  void enter() {
    saved_ = FloatGuard::read();
    FloatGuard::write(FloatGuard::kDefault);
  }
  void exit() { FloatGuard::write(saved_); }

 private:
  FloatGuard::Word saved_ = FloatGuard::kDefault;
};

// Best and median of some rates.
std::pair<double, double> best_and_median(std::vector<double> rates) {
  std::sort(rates.begin(), rates.end());
  return {rates.back(), (rates[(rates.size() - 1) / 2] + rates[rates.size() / 2]) / 2};
}

void require_positive(const char* name, long long value) {
  if (value < 1) throw nb::value_error((std::string(name) + " must be at least 1").c_str());
}

void bind_ceilings(nb::module_& m) {
  m.def(
      "measure_read",
      [](long long bytes, int threads, const std::string& isa, int repeats) {
        require_positive("bytes", bytes);
        require_positive("threads", threads);
        require_positive("repeats", repeats);
        const Kernels& kernels = require_kernels(isa);
        nb::gil_scoped_release release;
        return best_and_median(measure_read(kernels, static_cast<size_t>(bytes), threads, repeats));
      },
      "bytes"_a, "threads"_a, "isa"_a, "repeats"_a = 5);
  const auto multiply = [&](const char* name, auto measure) {
    m.def(
        name,
        [measure](int threads, const std::string& isa, int repeats) {
          require_positive("threads", threads);
          require_positive("repeats", repeats);
          const Kernels& kernels = require_kernels(isa);
          nb::gil_scoped_release release;
          return best_and_median(measure(kernels, threads, repeats));
        },
        "threads"_a, "isa"_a, "repeats"_a = 5);
  };
  multiply("measure_dot", measure_dot);
  multiply("measure_fma", measure_fma);
}

void bind_machine(nb::module_& m) {
  m.def("available_isas", [] {
    std::vector<std::string> names;
    for (const Kernels* k : available_kernels()) names.emplace_back(k->name);
    return names;
  });
  m.def("has_isa", [](const std::string& name) { return find_kernels(name) != nullptr; });
  m.def("default_isa", [] { return std::string(available_kernels().back()->name); });
  m.def("cpu_features", cpu_features);
  m.def("default_threads", [](const std::string& root) { return usable_cores(root); }, "root"_a = "/");
  m.def("build_info", [] {
    return std::map<std::string, std::string>{{"compiler", __VERSION__}, {"version", ISOBIT_VERSION}};
  });
  m.def(
      "flush_to_zero", [] { FloatGuard::write(FloatGuard::kDefault | FloatGuard::kFlushToZero); },
      "Switches flush-to-zero on in the calling thread, as some libraries do; for tests.");
  nb::class_<IeeeMode>(m, "ieee_mode")
      .def(nb::init<>())
      .def("__enter__", &IeeeMode::enter)
      .def("__exit__", [](IeeeMode& g, nb::args) { g.exit(); });
}

// Strings of a GGUF array, each a 64-bit length and its UTF-8: those before the first that is broken or not whole,
// and the position after them.
std::pair<nb::list, size_t> read_strings(const Bytes& file, size_t position, size_t count) {
  nb::list strings;
  const auto left = [&] { return file.size() - position; };
  while (strings.size() < count && position <= file.size() && left() >= sizeof(uint64_t)) {
    uint64_t length;
    std::memcpy(&length, file.data() + position, sizeof length);
    if (length > left() - sizeof length) break;
    const auto* text = reinterpret_cast<const char*>(file.data() + position + sizeof length);
    PyObject* decoded = PyUnicode_DecodeUTF8(text, static_cast<Py_ssize_t>(length), "strict");
    if (decoded == nullptr) {
      PyErr_Clear();
      break;
    }
    strings.append(nb::steal(decoded));
    position += sizeof length + length;
  }
  return {strings, position};
}

}  // namespace

NB_MODULE(_native, m) {
  m.doc() = "The CPU kernels of Isobit.";
  nb::exception<NonFinite>(m, "NonFiniteError");
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const NonFinite& e) {
      const nb::object type = nb::module_::import_("isobit._native").attr("NonFiniteError");
      PyErr_SetObject(type.ptr(), nb::make_tuple(e.op, e.token).ptr());
    }
  });
  bind_session(m);
  bind_machine(m);
  bind_ceilings(m);
  m.def("apply_function", apply_function, "isa"_a, "name"_a, "x"_a);
  m.def("sum_striped", [](const std::string& isa, Floats x) {
    const FloatGuard guard;
    return require_kernels(isa).sum_striped(x.data(), x.size());
  });
  m.def(
      "pack",
      [](Bytes raw, int ggml_id, int rows, int columns) {
        const auto format = weight_format(ggml_id);
        if (!format || row_bytes(*format, columns) * rows != raw.size()) throw nb::value_error("weight size");
        const int tiles = (rows + kTileRows - 1) / kTileRows;
        const size_t tile_bytes = packed_tile_bytes(*format, columns);
        std::string packed(tile_bytes * tiles, '\xff');
        auto* out = reinterpret_cast<uint8_t*>(packed.data());
        for (int i = 0; i < tiles; ++i)
          pack_tile(*format, raw.data(), rows, columns, i, out + i * tile_bytes);
        return nb::bytes(packed.data(), packed.size());
      },
      "raw"_a, "ggml_id"_a, "rows"_a, "columns"_a, "A matrix in the layout of the kernels; for tests.");
  m.def("read_strings", read_strings, "file"_a, "position"_a, "count"_a);
  m.def("row_values", [](Bytes raw, int ggml_id, int columns) {
    const auto format = weight_format(ggml_id);
    if (!format || row_bytes(*format, columns) != raw.size()) throw nb::value_error("row size");
    Matrix out = new_matrix(1, columns);
    const FloatGuard guard;
    row_values(*format, raw.data(), columns, out.data());
    return out;
  });
}

}  // namespace isobit
