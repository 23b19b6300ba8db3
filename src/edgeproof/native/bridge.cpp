// An ExecuTorch backend whose work is done by a Python object.
//
// ExecuTorch asks a backend for three things: init, execute, destroy. Each is handed to the Python object
// given to register_backend(). What crosses is memory, never a copy of it: the program's named data as
// buffers, the tensors of a call as numpy arrays over ExecuTorch's own memory, with their strides.
//
// The interpreter's lock is taken here, since ExecuTorch calls from any thread. The Python side lets go of
// it while it waits for an answer, so calls from several threads overlap.
//
// The wheel's bindings point std::cout and std::cerr at a buffer on the stack of the call and put back what
// was there before. With the lock let go in between, calls end in another order than they began, and the
// streams are left pointing at a stack that is gone: the next log message ends the process. So the
// streams never point there while Python code runs here, and ExecuTorch's log does not pass through them.
//
// Built by edgeproof.native.build against the headers and libexecutorch of the wheel: there is no stable
// ABI between releases.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/core/exec_aten/util/tensor_util.h>
#include <executorch/runtime/platform/log.h>
#include <executorch/runtime/platform/runtime.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

namespace py = pybind11;
namespace rt = executorch::runtime;
using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::Tensor;

namespace {

// A piece of the program's named data. Lives as long as Python holds it, at most as long as the program.
struct Blob {
  rt::FreeableBuffer buffer;
  explicit Blob(rt::FreeableBuffer&& b) : buffer(std::move(b)) {}
};

void log_to_stderr(
    et_timestamp_t,
    et_pal_log_level_t,
    const char* filename,
    const char*,
    size_t line,
    const char* message,
    size_t length) {
  std::fprintf(stderr, "[%s:%zu] %.*s\n", filename, line, static_cast<int>(length), message);
}

// A stream's buffer that writes to a C stream at once.
class Unbuffered final : public std::streambuf {
 public:
  explicit Unbuffered(std::FILE* file) : file_(file) {}

 protected:
  int_type overflow(int_type c) override {
    return traits_type::eq_int_type(c, traits_type::eof()) ? traits_type::not_eof(c) : std::fputc(c, file_);
  }
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    return static_cast<std::streamsize>(std::fwrite(text, 1, static_cast<size_t>(size), file_));
  }
  int sync() override { return std::fflush(file_); }

 private:
  std::FILE* file_;
};

// While one lives, std::cout and std::cerr are the process's own. The interpreter's lock is held when it
// comes and goes.
class OwnStreams {
 public:
  OwnStreams() {
    // Never destroyed: the streams may point there until the very end of the process.
    static auto* out = new Unbuffered(stdout);
    static auto* err = new Unbuffered(stderr);
    out_ = std::cout.rdbuf(out);
    err_ = std::cerr.rdbuf(err);
  }
  ~OwnStreams() {
    std::cout.rdbuf(out_);
    std::cerr.rdbuf(err_);
  }
  OwnStreams(const OwnStreams&) = delete;

 private:
  std::streambuf* out_;
  std::streambuf* err_;
};

// What init() made: the Python object, its bound execute(), and how many of a call's values are inputs.
struct Handle {
  py::object object;
  py::object execute;
  size_t inputs;
};

// numpy has no bfloat16: its bits travel as uint16, and the Python side knows from the name.
struct Dtype {
  const char* name;
  const char* numpy;
};

Dtype dtype_of(ScalarType type) {
  switch (type) {
    case ScalarType::Byte: return {"uint8", "u1"};
    case ScalarType::Char: return {"int8", "i1"};
    case ScalarType::Short: return {"int16", "i2"};
    case ScalarType::Int: return {"int32", "i4"};
    case ScalarType::Long: return {"int64", "i8"};
    case ScalarType::Half: return {"float16", "f2"};
    case ScalarType::Float: return {"float32", "f4"};
    case ScalarType::Double: return {"float64", "f8"};
    case ScalarType::Bool: return {"bool", "?"};
    case ScalarType::BFloat16: return {"bfloat16", "u2"};
    case ScalarType::UInt16: return {"uint16", "u2"};
    case ScalarType::UInt32: return {"uint32", "u4"};
    default: return {nullptr, nullptr};
  }
}

// A numpy array over a tensor's memory. The tensor outlives it: it is gone when execute() returns.
py::array view_of(const Tensor& tensor, const char* numpy_dtype) {
  py::dtype dtype(numpy_dtype);
  std::vector<py::ssize_t> shape, strides;
  for (ssize_t d = 0; d < tensor.dim(); ++d) {
    shape.push_back(tensor.size(d));
    strides.push_back(tensor.strides()[d] * dtype.itemsize());
  }
  // With a base numpy neither copies nor frees; None serves.
  return py::array(dtype, std::move(shape), std::move(strides), tensor.mutable_data_ptr(), py::none());
}

py::object value_of(const rt::EValue& value) {
  if (value.isTensor()) {
    const Tensor& tensor = value.toTensor();
    Dtype dtype = dtype_of(tensor.scalar_type());
    if (dtype.name == nullptr) {
      throw py::type_error(
          "a tensor of ExecuTorch's dtype number " +
          std::to_string(static_cast<int>(tensor.scalar_type())) + ", which cannot be handed over");
    }
    return py::make_tuple(dtype.name, view_of(tensor, dtype.numpy));
  }
  if (value.isInt()) return py::int_(value.toInt());
  if (value.isDouble()) return py::float_(value.toDouble());
  if (value.isBool()) return py::bool_(value.toBool());
  return py::none();
}

rt::Error log_and_convert(py::error_already_set& raised, const char* stage, rt::Error otherwise) {
  rt::Error code = otherwise;
  std::string text;
  try {
    py::object value = raised.value();
    if (py::hasattr(value, "executorch_error")) {
      code = static_cast<rt::Error>(value.attr("executorch_error").cast<int>());
      text = py::str(value).cast<std::string>();
    } else {
      text = raised.what();
    }
  } catch (...) {
    text = "an exception that cannot be shown";
  }
  ET_LOG(Error, "%s: %s", stage, text.c_str());
  return code;
}

class PythonBackend final : public rt::BackendInterface {
 public:
  PythonBackend(std::string name, py::object object) : name_(std::move(name)), object_(std::move(object)) {}

  const char* name() const { return name_.c_str(); }

  bool is_available() const override { return Py_IsInitialized() != 0; }

  rt::Result<rt::DelegateHandle*> init(
      rt::BackendInitContext& context,
      rt::FreeableBuffer* processed,
      rt::ArrayRef<rt::CompileSpec> specs) const override {
    py::gil_scoped_acquire gil;
    OwnStreams streams;
    try {
      py::dict spec_values;
      for (const auto& spec : specs) {
        spec_values[spec.key] =
            py::bytes(static_cast<const char*>(spec.value.buffer), spec.value.nbytes);
      }
      py::dict options;
      for (const auto& option : context.runtime_specs()) {
        options[option.key] = std::visit(
            [](const auto& value) -> py::object {
              using T = std::decay_t<decltype(value)>;
              if constexpr (std::is_same_v<T, bool>) {
                return py::bool_(value);
              } else if constexpr (std::is_same_v<T, int>) {
                return py::int_(value);
              } else {
                return py::str(value.data());
              }
            },
            option.value);
      }
      const rt::NamedDataMap* data = context.get_named_data_map();
      py::cpp_function named_data([data](const std::string& key) -> std::unique_ptr<Blob> {
        if (data == nullptr) throw py::key_error(key);
        auto found = data->get_data(key.c_str());
        if (!found.ok()) throw py::key_error(key);
        return std::make_unique<Blob>(std::move(found.get()));
      });
      py::bytes manifest(static_cast<const char*>(processed->data()), processed->size());
      const char* method = context.get_method_name();
      py::object made = object_.attr("init")(
          manifest, spec_values, named_data, options, method == nullptr ? "" : method);
      processed->Free();
      auto handle = std::make_unique<Handle>();
      handle->execute = made.attr("execute");
      handle->inputs = made.attr("input_count").cast<size_t>();
      handle->object = std::move(made);
      return static_cast<rt::DelegateHandle*>(handle.release());
    } catch (py::error_already_set& raised) {
      return log_and_convert(raised, name(), rt::Error::DelegateInvalidCompatibility);
    } catch (const std::exception& raised) {
      return log_and_tell(raised, rt::Error::Internal);
    }
  }

  rt::Error execute(
      rt::BackendExecutionContext&,
      rt::DelegateHandle* opaque,
      rt::Span<rt::EValue*> values) const override {
    auto* handle = static_cast<Handle*>(opaque);
    py::gil_scoped_acquire gil;
    OwnStreams streams;
    try {
      if (values.size() < handle->inputs) {
        throw py::value_error(
            "called with " + std::to_string(values.size()) + " values, the delegate has " +
            std::to_string(handle->inputs) + " inputs");
      }
      py::list inputs(handle->inputs), outputs(values.size() - handle->inputs);
      for (size_t i = 0; i < values.size(); ++i) {
        py::object value = value_of(*values[i]);
        if (i < handle->inputs) {
          inputs[i] = std::move(value);
        } else {
          outputs[i - handle->inputs] = std::move(value);
        }
      }
      // Returns arrays for the outputs whose sizes differ from those of the last call, None for the others,
      // which it has written.
      py::list left = handle->execute(inputs, outputs);
      for (size_t i = 0; i < left.size(); ++i) {
        if (left[i].is_none()) continue;
        rt::Error error = resize_and_write(values[handle->inputs + i]->toTensor(), left[i], i);
        if (error != rt::Error::Ok) return error;
      }
      return rt::Error::Ok;
    } catch (py::error_already_set& raised) {
      return log_and_convert(raised, name(), rt::Error::Internal);
    } catch (const std::exception& raised) {
      return log_and_tell(raised, rt::Error::InvalidArgument);
    }
  }

  void destroy(rt::DelegateHandle* opaque) const override {
    auto* handle = static_cast<Handle*>(opaque);
    if (!Py_IsInitialized()) return;  // the interpreter took its objects with it
    py::gil_scoped_acquire gil;
    OwnStreams streams;
    delete handle;
  }

 private:
  // What went wrong on this side of the boundary: nothing may be thrown through ExecuTorch's frames, which
  // are built without exceptions.
  rt::Error log_and_tell(const std::exception& raised, rt::Error code) const {
    ET_LOG(Error, "%s: %s", name(), raised.what());
    try {
      object_.attr("last_error") = raised.what();
    } catch (const std::exception&) {
      PyErr_Clear();
    }
    return code;
  }

  rt::Error resize_and_write(Tensor tensor, py::handle answer, size_t index) const {
    py::array array = py::reinterpret_borrow<py::array>(answer);
    std::vector<SizesType> sizes(array.shape(), array.shape() + array.ndim());
    rt::Error error = rt::resize_tensor(tensor, {sizes.data(), sizes.size()});
    if (error != rt::Error::Ok) {
      const std::string shape = py::str(py::tuple(array.attr("shape")));
      return log_and_tell(
          std::runtime_error(
              "output " + std::to_string(index) + " is of shape " + shape +
              ", the program has planned less room for it"),
          error);
    }
    py::array target = view_of(tensor, dtype_of(tensor.scalar_type()).numpy);
    py::module_::import("numpy").attr("copyto")(target, array);
    return rt::Error::Ok;
  }

  std::string name_;
  py::object object_;
};

}  // namespace

PYBIND11_MODULE(bridge, m) {
  py::class_<Blob>(m, "Blob", py::buffer_protocol()).def_buffer([](Blob& blob) {
    return py::buffer_info(
        const_cast<uint8_t*>(static_cast<const uint8_t*>(blob.buffer.data())),
        static_cast<py::ssize_t>(blob.buffer.size()),
        /*readonly=*/true);
  });
  m.def("is_registered", [](const std::string& name) { return rt::get_backend_class(name.c_str()) != nullptr; });
  // The runtime keeps a pointer to the backend for as long as the process lives.
  m.def("register_backend", [](const std::string& name, py::object object) {
    rt::runtime_init();
    // Not by register_pal(), which warns of it on every program's standard error.
    const_cast<rt::PalImpl*>(rt::get_pal_impl())->emit_log_message = log_to_stderr;
    auto* backend = new PythonBackend(name, std::move(object));
    return static_cast<int>(rt::register_backend({backend->name(), backend}));
  });
}
