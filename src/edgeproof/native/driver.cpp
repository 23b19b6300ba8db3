// executorch::extension::Module from native threads, for Python.
//
// The wheel's Python bindings hold the interpreter's lock for the whole of a call and take no load-time
// options. Here calls do not hold it, options are taken, and run() drives one program from many threads at
// once: they wait at a gate, and each makes, loads, runs, checks and destroys a Module again and again.
//
// Built by edgeproof.native.build, also with a sanitizer.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <executorch/extension/module/module.h>
#include <executorch/runtime/backend/options.h>

#include <dirent.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>
#ifdef __linux__
#include <malloc.h>
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace py = pybind11;
namespace rt = executorch::runtime;
using executorch::aten::DimOrderType;
using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::StridesType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;
using executorch::extension::Module;

namespace {

const std::array<std::pair<ScalarType, const char*>, 9> kDtypes{{
    {ScalarType::Byte, "u1"},
    {ScalarType::Char, "i1"},
    {ScalarType::Short, "i2"},
    {ScalarType::Int, "i4"},
    {ScalarType::Long, "i8"},
    {ScalarType::Half, "f2"},
    {ScalarType::Float, "f4"},
    {ScalarType::Double, "f8"},
    {ScalarType::Bool, "?"},
}};

ScalarType type_of(const py::array& array) {
  for (const auto& [type, name] : kDtypes) {
    if (array.dtype().equal(py::dtype(name))) return type;
  }
  throw py::type_error("no tensor of ExecuTorch's is of dtype " + py::str(array.dtype()).cast<std::string>());
}

// A copy with the tensor's layout.
py::array copied(const Tensor& tensor) {
  for (const auto& [type, name] : kDtypes) {
    if (type != tensor.scalar_type()) continue;
    const py::dtype dtype(name);
    std::vector<py::ssize_t> shape(tensor.sizes().begin(), tensor.sizes().end()), strides;
    for (const auto stride : tensor.strides()) strides.push_back(stride * dtype.itemsize());
    // numpy lays a copy out as what it copies.
    const py::array view(dtype, std::move(shape), std::move(strides), tensor.const_data_ptr(), py::none());
    return view.attr("copy")("K");
  }
  throw py::type_error("an output of a dtype that numpy does not have");
}

void check(rt::Error error, const std::string& what) {
  if (error != rt::Error::Ok) {
    throw std::runtime_error(what + " failed: " + rt::to_string(error));
  }
}

rt::BackendOption option_of(const std::string& key, const py::object& value) {
  rt::BackendOption option;
  if (key.size() >= rt::kMaxOptionKeyLength) throw py::value_error("the name of option " + key + " is too long");
  std::memcpy(option.key, key.c_str(), key.size() + 1);
  if (py::isinstance<py::bool_>(value)) {
    option.value = value.cast<bool>();
  } else if (py::isinstance<py::int_>(value)) {
    option.value = value.cast<int>();
  } else {
    const auto text = value.cast<std::string>();
    std::array<char, rt::kMaxOptionValueLength> held{};
    if (text.size() >= held.size()) throw py::value_error("the value of option " + key + " is too long");
    std::memcpy(held.data(), text.c_str(), text.size() + 1);
    option.value = held;
  }
  return option;
}

// Load-time options for one backend.
class Options {
 public:
  Options(const std::string& backend, const py::dict& options) {
    for (const auto& [key, value] : options) {
      held_.push_back(option_of(key.cast<std::string>(), py::reinterpret_borrow<py::object>(value)));
    }
    if (held_.empty()) return;
    check(map_.set_options(backend.c_str(), {held_.data(), held_.size()}), "setting options");
  }
  Options(const Options&) = delete;
  // Null without options.
  const rt::LoadBackendOptionsMap* map() const { return held_.empty() ? nullptr : &map_; }

 private:
  std::vector<rt::BackendOption> held_;
  rt::LoadBackendOptionsMap map_;
};

// The dims of an array from the outermost in memory to the innermost.
std::vector<DimOrderType> order_of(const py::array& array) {
  std::vector<DimOrderType> order(static_cast<size_t>(array.ndim()));
  std::iota(order.begin(), order.end(), static_cast<DimOrderType>(0));
  std::stable_sort(order.begin(), order.end(), [&](DimOrderType a, DimOrderType b) {
    // The stride of a dim of one element means nothing.
    return array.shape(a) > 1 && array.shape(b) > 1 && array.strides(a) > array.strides(b);
  });
  return order;
}

// The strides, in elements, of a tensor that fills its memory; empty when the array does not.
std::vector<StridesType> dense_strides(const py::array& array, const std::vector<DimOrderType>& order) {
  std::vector<StridesType> strides(order.size());
  py::ssize_t step = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    if (array.shape(*dim) > 1 && array.strides(*dim) != step * array.itemsize()) return {};
    strides[*dim] = static_cast<StridesType>(step);
    step *= std::max<py::ssize_t>(array.shape(*dim), 1);
  }
  return strides;
}

// The values of a call, over arrays that Python owns.
class Values {
 public:
  explicit Values(const std::vector<py::array>& given) {
    for (const auto& value : given) {
      py::array array = value;
      auto order = order_of(array);
      auto strides = dense_strides(array, order);
      if (strides.size() != order.size()) {  // with gaps, or backwards
        array = array.attr("copy")("C");
        order = order_of(array);
        strides = dense_strides(array, order);
      }
      sizes_.emplace_back(array.shape(), array.shape() + array.ndim());
      types_.push_back(type_of(array));
      data_.push_back(const_cast<void*>(array.data()));
      orders_.push_back(std::move(order));
      strides_.push_back(std::move(strides));
      arrays_.push_back(std::move(array));
    }
  }
  size_t size() const { return arrays_.size(); }
  const void* data(size_t i) const { return data_[i]; }
  ScalarType type(size_t i) const { return types_[i]; }
  const std::vector<SizesType>& sizes(size_t i) const { return sizes_[i]; }
  const std::vector<StridesType>& strides(size_t i) const { return strides_[i]; }

  // Tensors over the same memory, for one thread. They must not outlive this.
  std::vector<std::unique_ptr<TensorImpl>> tensors() const {
    std::vector<std::unique_ptr<TensorImpl>> made;
    for (size_t i = 0; i < size(); ++i) {
      made.push_back(std::make_unique<TensorImpl>(
          types_[i],
          static_cast<ssize_t>(sizes_[i].size()),
          const_cast<SizesType*>(sizes_[i].data()),
          data_[i],
          const_cast<DimOrderType*>(orders_[i].data()),
          const_cast<StridesType*>(strides_[i].data())));
    }
    return made;
  }

 private:
  std::vector<py::array> arrays_;
  std::vector<std::vector<SizesType>> sizes_;
  std::vector<std::vector<DimOrderType>> orders_;
  std::vector<std::vector<StridesType>> strides_;
  std::vector<ScalarType> types_;
  std::vector<void*> data_;
};

std::vector<rt::EValue> evalues(const std::vector<std::unique_ptr<TensorImpl>>& tensors) {
  std::vector<rt::EValue> values;
  for (const auto& tensor : tensors) values.emplace_back(Tensor(tensor.get()));
  return values;
}

rt::Error load_program(Module& module, const Options& options) {
  return options.map() == nullptr ? module.load() : module.load(*options.map());
}

// One Module. Threads that call it take turns, as ExecuTorch asks.
class LoadedModule {
 public:
  LoadedModule(const std::string& path, const std::string& backend, const py::dict& given) : module_(path) {
    const Options options(backend, given);
    py::gil_scoped_release free;
    check(load_program(module_, options), "loading " + path);
  }

  void load_method(const std::string& method) {
    py::gil_scoped_release free;
    std::lock_guard turn(turn_);
    check(module_.load_method(method), "loading method " + method);
  }

  std::vector<py::array> execute(const std::string& method, const std::vector<py::array>& given) {
    const Values inputs(given);
    const auto tensors = inputs.tensors();
    rt::Error error = rt::Error::Ok;
    std::vector<rt::EValue> answers;
    std::unique_lock turn(turn_, std::defer_lock);  // kept until the outputs were copied
    {
      py::gil_scoped_release free;
      turn.lock();
      auto result = module_.execute(method, evalues(tensors));
      error = result.error();
      if (result.ok()) answers = std::move(result.get());
    }
    check(error, "executing " + method);
    std::vector<py::array> outputs;
    for (const auto& answer : answers) {
      if (!answer.isTensor()) throw py::type_error("an output that is no tensor");
      outputs.push_back(copied(answer.toTensor()));
    }
    return outputs;
  }

 private:
  Module module_;
  std::mutex turn_;
};

// ---- many threads -------------------------------------------------------------------------------------

using Clock = std::chrono::steady_clock;

int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

// A program with the inputs of each thread, the answers wanted to them, and how far off those may be.
struct Load {
  std::string path;
  std::string method;
  std::unique_ptr<Options> options;
  std::vector<Values> inputs;
  std::vector<Values> wanted;
  std::vector<double> tolerances;  // of each output, absolute; 0 asks for the same bits
};

struct Span {
  int64_t begin, end;
};

struct Failure {
  int thread;
  int iteration;
  std::string stage;
  std::string what;
};

// What one thread did.
struct Record {
  std::vector<Span> loads, runs;
  std::vector<Failure> failures;
  int64_t failed = 0;  // iterations
  int64_t checked = 0;  // outputs
};

constexpr size_t kFailuresKept = 3;

double at(const void* data, ScalarType type, size_t i) {
  switch (type) {
    case ScalarType::Float: return static_cast<const float*>(data)[i];
    case ScalarType::Double: return static_cast<const double*>(data)[i];
    case ScalarType::Half: return static_cast<float>(static_cast<const executorch::aten::Half*>(data)[i]);
    case ScalarType::Byte: case ScalarType::Bool: return static_cast<const uint8_t*>(data)[i];
    case ScalarType::Char: return static_cast<const int8_t*>(data)[i];
    case ScalarType::Short: return static_cast<const int16_t*>(data)[i];
    case ScalarType::Int: return static_cast<const int32_t*>(data)[i];
    case ScalarType::Long: return static_cast<double>(static_cast<const int64_t*>(data)[i]);
    default: return NAN;
  }
}

// What is wrong with an answer; empty when nothing is.
std::string differs(const Tensor& got, const Values& wanted, size_t i, double tolerance) {
  const std::string output = "output " + std::to_string(i);
  const auto& sizes = wanted.sizes(i);
  if (got.scalar_type() != wanted.type(i)) return output + " is of another dtype";
  if (got.sizes().size() != sizes.size() || !std::equal(sizes.begin(), sizes.end(), got.sizes().begin())) {
    return output + " is of another shape";
  }
  const auto& strides = wanted.strides(i);
  if (!std::equal(strides.begin(), strides.end(), got.strides().begin())) return output + " is of another layout";
  if (std::memcmp(got.const_data_ptr(), wanted.data(i), got.nbytes()) == 0) return "";
  double most = 0;
  size_t unequal = 0;
  const auto count = static_cast<size_t>(got.numel());
  for (size_t k = 0; k < count; ++k) {
    const double a = at(got.const_data_ptr(), got.scalar_type(), k), b = at(wanted.data(i), wanted.type(i), k);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    ++unequal;
    const double off = std::isnan(a - b) ? INFINITY : std::abs(a - b);
    most = std::max(most, off);
  }
  if (tolerance > 0 && most <= tolerance) return "";
  char text[160];
  std::snprintf(text, sizeof text, " differs in %zu of %zu elements, by up to %.3g", unequal, count, most);
  return output + text;
}

// Where threads wait until all have come and the one that watches lets them go on.
class Gate {
 public:
  explicit Gate(int threads) : threads_(threads) {}
  void wait() {
    std::unique_lock lock(mutex_);
    const int64_t turn = turn_;
    if (++waiting_ == threads_) all_here_.notify_all();
    open_.wait(lock, [&] { return turn_ != turn; });
  }
  // Wait until all threads are here, do `work` meanwhile, and let them go.
  template <typename Work>
  void pass(Work work) {
    {
      std::unique_lock lock(mutex_);
      all_here_.wait(lock, [&] { return waiting_ == threads_; });
    }
    work();
    std::lock_guard lock(mutex_);
    waiting_ = 0;
    ++turn_;
    open_.notify_all();
  }

 private:
  const int threads_;
  int waiting_ = 0;
  int64_t turn_ = 0;
  std::mutex mutex_;
  std::condition_variable all_here_, open_;
};

// Has two threads begin a call in the same moment, so that calls overlap however short they are: whoever comes
// first waits for the next, whichever that is. Of many threads one waits here at most.
class Pairs {
 public:
  // Before each block, while no thread is in it.
  void begin(int threads) { left_ = threads; }
  // A thread that comes no more in this block.
  void leave() { --left_; }
  void meet() {
    uint64_t turn;
    {
      std::lock_guard lock(mutex_);
      if (waiting_) {
        waiting_ = false;
        ++turn_;
        return;
      }
      waiting_ = true;
      turn = turn_;
    }
    for (int tries = 0; turn_ == turn; ++tries) {
      if (left_ == 1) {  // no one is left to come
        std::lock_guard lock(mutex_);
        waiting_ = false;
        return;
      }
      if (tries > kSpins) std::this_thread::yield();
    }
  }

 private:
  static constexpr int kSpins = 2000;
  std::mutex mutex_;
  bool waiting_ = false;
  std::atomic<uint64_t> turn_ = 0;
  std::atomic<int> left_ = 0;
};

struct Sample {
  int64_t iterations, heap, resident, descriptors, threads;
};

int64_t entries_of(const char* folder) {
  DIR* open = opendir(folder);
  if (open == nullptr) return -1;
  int64_t count = -3;  // ".", ".." and the folder itself
  while (readdir(open) != nullptr) ++count;
  closedir(open);
  return count;
}

Sample sample(int64_t iterations) {
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  malloc_trim(0);
  const struct mallinfo2 heap = mallinfo2();
  const auto in_use = static_cast<int64_t>(heap.uordblks + heap.hblkhd);
#else
  const int64_t in_use = -1;
#endif
  long pages = -1;
  if (std::FILE* file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = -1;
    std::fclose(file);
  }
  const int64_t resident = pages < 0 ? -1 : pages * sysconf(_SC_PAGESIZE);
  return {iterations, in_use, resident, entries_of("/proc/self/fd"), entries_of("/proc/self/task") + 1};
}

enum class Mode { kPrivate, kSharedProgram, kSharedMethod, kUnserialised, kChurn };

Mode mode_of(const std::string& name) {
  if (name == "private") return Mode::kPrivate;
  if (name == "shared-program") return Mode::kSharedProgram;
  if (name == "shared-method") return Mode::kSharedMethod;
  if (name == "unserialised") return Mode::kUnserialised;
  if (name == "churn") return Mode::kChurn;
  throw py::value_error("there is no mode " + name);
}

class Driver {
 public:
  // Programs are (path, method, backend, options, inputs, wanted, tolerances): a list of arrays for each
  // thread in `inputs` and `wanted`. Thread t takes program t mod their number.
  explicit Driver(const std::vector<py::tuple>& programs) {
    for (const auto& program : programs) {
      Load load;
      load.path = program[0].cast<std::string>();
      load.method = program[1].cast<std::string>();
      load.options = std::make_unique<Options>(program[2].cast<std::string>(), program[3].cast<py::dict>());
      for (const auto& given : program[4].cast<std::vector<std::vector<py::array>>>()) load.inputs.emplace_back(given);
      for (const auto& right : program[5].cast<std::vector<std::vector<py::array>>>()) load.wanted.emplace_back(right);
      load.tolerances = program[6].cast<std::vector<double>>();
      if (load.inputs.empty() || load.inputs.size() != load.wanted.size()) {
        throw py::value_error("inputs without answers");
      }
      loads_.push_back(std::move(load));
    }
    if (loads_.empty()) throw py::value_error("no programs");
  }

  // `threads` threads do `iterations` each, in blocks with a gate before each of them.
  py::dict run(const std::string& mode_name, int threads, int iterations, int blocks, uint64_t seed) {
    const Mode mode = mode_of(mode_name);
    if (threads < 1 || iterations < 1) throw py::value_error("at least one thread and one iteration");
    blocks = std::clamp(blocks, 1, iterations);
    std::vector<Record> records(static_cast<size_t>(threads));
    std::vector<Sample> samples;
    int64_t began = 0, ended = 0;
    {
      py::gil_scoped_release free;
      share(mode);
      Gate gate(threads);
      Pairs pairs;
      std::vector<std::thread> running;
      for (int t = 0; t < threads; ++t) {
        Record& record = records[static_cast<size_t>(t)];
        record.loads.reserve(static_cast<size_t>(iterations));
        record.runs.reserve(static_cast<size_t>(iterations));
        running.emplace_back([this, t, mode, iterations, blocks, seed, &gate, &pairs, &record] {
          work(t, mode, iterations, blocks, seed, gate, pairs, record);
        });
      }
      samples.reserve(static_cast<size_t>(blocks) + 1);
      for (int block = 0; block <= blocks; ++block) {
        gate.pass([&] {
          if (block == blocks) ended = now();
          const int64_t done = static_cast<int64_t>(iterations) * block / blocks * threads;
          samples.push_back(sample(done));
          pairs.begin(threads);
          if (block == 0) began = now();
        });
      }
      for (auto& thread : running) thread.join();
      shared_.clear();
    }
    return told(records, samples, ended - began);
  }

 private:
  // What the threads have in common, loaded before they start.
  void share(Mode mode) {
    shared_.clear();
    if (mode != Mode::kSharedProgram && mode != Mode::kSharedMethod && mode != Mode::kUnserialised) return;
    for (auto& load : loads_) {
      auto module = std::make_unique<Shared>(load.path);
      const rt::Error error = load_program(module->module, *load.options);
      module->problem = error == rt::Error::Ok ? "" : rt::to_string(error);
      if (error == rt::Error::Ok && mode != Mode::kSharedProgram) {
        const rt::Error loaded = module->module.load_method(load.method);
        if (loaded != rt::Error::Ok) module->problem = rt::to_string(loaded);
      }
      shared_.push_back(std::move(module));
    }
  }

  void work(int thread, Mode mode, int iterations, int blocks, uint64_t seed, Gate& gate, Pairs& pairs, Record& record) {
    const size_t which = static_cast<size_t>(thread) % loads_.size();
    Load& load = loads_[which];
    const size_t turn = static_cast<size_t>(thread) / loads_.size() % load.inputs.size();
    const Values& inputs = load.inputs[turn];
    const Values& wanted = load.wanted[turn];
    std::mt19937_64 random(seed * 1000003 + static_cast<uint64_t>(thread));
    int done = 0;
    for (int block = 0; block < blocks; ++block) {
      gate.wait();
      const int until = static_cast<int>(static_cast<int64_t>(iterations) * (block + 1) / blocks);
      for (; done < until; ++done) {
        const size_t before = record.failures.size();
        std::string stage, problem;
        // Loads meet loads in one iteration and runs meet runs in another, as the seed has it.
        iterate(mode, which, inputs, wanted, random() % 2 == 0, pairs, record, stage, problem);
        if (!problem.empty()) {
          ++record.failed;
          if (before < kFailuresKept) record.failures.push_back({thread, done, stage, problem});
        }
      }
      pairs.leave();
    }
    gate.wait();
  }

  void iterate(
      Mode mode, size_t which, const Values& inputs, const Values& wanted, bool loads_meet, Pairs& pairs,
      Record& record, std::string& stage, std::string& problem) {
    Load& load = loads_[which];
    const auto tensors = inputs.tensors();
    if (mode == Mode::kSharedMethod || mode == Mode::kUnserialised) {
      Shared& shared = *shared_[which];
      stage = "load";
      if (!(problem = shared.problem).empty()) return;
      std::unique_lock<std::mutex> turn(shared.turn, std::defer_lock);
      // As ExecuTorch asks: one call of a method at a time, until its outputs were read.
      if (mode == Mode::kSharedMethod) turn.lock();
      if (mode == Mode::kUnserialised) pairs.meet();
      execute(shared.module, load, tensors, wanted, record, stage, problem);
      return;
    }
    std::optional<Module> module;
    if (loads_meet || mode == Mode::kChurn) pairs.meet();
    Span loading{now(), 0};
    stage = "load";
    rt::Error error = rt::Error::Ok;
    if (mode == Mode::kSharedProgram) {
      if (!(problem = shared_[which]->problem).empty()) return;
      module.emplace(shared_[which]->module.program());
    } else {
      module.emplace(load.path);
      error = load_program(*module, *load.options);
    }
    if (error == rt::Error::Ok) {
      error = module->load_method(load.method, nullptr, nullptr, load.options->map());
    }
    loading.end = now();
    record.loads.push_back(loading);
    if (error != rt::Error::Ok) {
      problem = rt::to_string(error);
      return;
    }
    if (!loads_meet && mode != Mode::kChurn) pairs.meet();
    if (mode != Mode::kChurn) execute(*module, load, tensors, wanted, record, stage, problem);
    // And destroyed, while the others go on.
  }

  static void execute(
      Module& module, const Load& load, const std::vector<std::unique_ptr<TensorImpl>>& tensors, const Values& wanted,
      Record& record, std::string& stage, std::string& problem) {
    stage = "run";
    Span running{now(), 0};
    auto result = module.execute(load.method, evalues(tensors));
    running.end = now();
    record.runs.push_back(running);
    if (!result.ok()) {
      problem = rt::to_string(result.error());
      return;
    }
    stage = "check";
    const auto& answers = result.get();
    if (answers.size() != wanted.size()) {
      problem = std::to_string(answers.size()) + " outputs, not " + std::to_string(wanted.size());
      return;
    }
    for (size_t i = 0; i < answers.size(); ++i) {
      if (!answers[i].isTensor()) {
        problem = "output " + std::to_string(i) + " is no tensor";
        return;
      }
      const std::string wrong = differs(answers[i].toTensor(), wanted, i, load.tolerances.at(i));
      ++record.checked;
      if (!wrong.empty() && problem.empty()) problem = wrong;
    }
  }

  static py::list spans_of(const std::vector<Record>& records, std::vector<Span> Record::* kind) {
    py::list all;
    for (const auto& record : records) {
      py::list spans;
      for (const auto& span : record.*kind) spans.append(py::make_tuple(span.begin, span.end));
      all.append(std::move(spans));
    }
    return all;
  }

  static py::dict told(const std::vector<Record>& records, const std::vector<Sample>& samples, int64_t took) {
    int64_t failed = 0, checked = 0;
    py::list failures, taken;
    for (const auto& record : records) {
      failed += record.failed;
      checked += record.checked;
      for (const auto& f : record.failures) {
        py::dict failure;
        failure["thread"] = f.thread, failure["iteration"] = f.iteration;
        failure["stage"] = f.stage, failure["problem"] = f.what;
        failures.append(std::move(failure));
      }
    }
    for (const auto& s : samples) {
      py::dict sample;
      sample["iterations"] = s.iterations, sample["heap"] = s.heap, sample["resident"] = s.resident;
      sample["descriptors"] = s.descriptors, sample["threads"] = s.threads;
      taken.append(std::move(sample));
    }
    py::dict result;
    result["seconds"] = static_cast<double>(took) * 1e-9;
    result["failed"] = failed, result["outputs_checked"] = checked;
    result["failures"] = std::move(failures), result["samples"] = std::move(taken);
    result["loads"] = spans_of(records, &Record::loads), result["runs"] = spans_of(records, &Record::runs);
    return result;
  }

  struct Shared {
    explicit Shared(const std::string& path) : module(path) {}
    Module module;
    std::string problem;
    std::mutex turn;
  };
  std::vector<Load> loads_;
  std::vector<std::unique_ptr<Shared>> shared_;
};

// ---- stacks -------------------------------------------------------------------------------------------

unsigned long thread_id() {
#ifdef __linux__
  return static_cast<unsigned long>(gettid());
#else
  return reinterpret_cast<unsigned long>(pthread_self());
#endif
}

// Write this thread's native stack to stderr. For signals: it allocates nothing.
void write_stack(int signal) {
  void* frames[64];
  const int count = backtrace(frames, 64);
  char line[64];
  const int length = std::snprintf(line, sizeof line, "\n[native stack, signal %d, thread %lu]\n", signal, thread_id());
  if (write(STDERR_FILENO, line, static_cast<size_t>(length)) < 0) return;
  backtrace_symbols_fd(frames, count, STDERR_FILENO);
}

struct sigaction g_before[NSIG];

void on_fatal(int signal) {
  write_stack(signal);
  sigaction(signal, &g_before[signal], nullptr);  // what was there before: Python's faulthandler
  raise(signal);
}

// Have native stacks written: of the thread that a fatal signal comes from, and of any that gets `ask`.
void write_native_stacks(int ask) {
  void* frames[2];
  backtrace(frames, 2);  // loads what it needs; in a handler it must not
  struct sigaction fatal {};
  fatal.sa_handler = on_fatal;
  fatal.sa_flags = SA_NODEFER | SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigaction(signal, &fatal, &g_before[signal]);
  struct sigaction asked {};
  asked.sa_handler = write_stack;
  asked.sa_flags = SA_RESTART;
  sigaction(ask, &asked, nullptr);
}

}  // namespace

PYBIND11_MODULE(driver, m) {
  py::class_<LoadedModule>(m, "Module")
      .def(py::init<const std::string&, const std::string&, const py::dict&>())
      .def("load_method", &LoadedModule::load_method)
      .def("execute", &LoadedModule::execute);
  py::class_<Driver>(m, "Driver").def(py::init<const std::vector<py::tuple>&>()).def("run", &Driver::run);
  m.def("write_native_stacks", &write_native_stacks);
}
