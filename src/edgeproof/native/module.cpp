// executorch::extension::Module for Python, with what the Python bindings of the wheel leave out: load-time
// options for a backend, and calls that do not hold the interpreter's lock.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <executorch/extension/module/module.h>
#include <executorch/runtime/backend/options.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

namespace py = pybind11;
namespace rt = executorch::runtime;
using executorch::aten::ScalarType;
using executorch::aten::SizesType;
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

py::array copied(const Tensor& tensor) {
  for (const auto& [type, name] : kDtypes) {
    if (type != tensor.scalar_type()) continue;
    std::vector<py::ssize_t> shape(tensor.sizes().begin(), tensor.sizes().end());
    return py::array(py::dtype(name), std::move(shape), tensor.const_data_ptr());
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

class LoadedModule {
 public:
  LoadedModule(const std::string& path, const std::string& backend, const py::dict& options) : module_(path) {
    for (const auto& [key, value] : options) {
      options_.push_back(option_of(key.cast<std::string>(), py::reinterpret_borrow<py::object>(value)));
    }
    rt::LoadBackendOptionsMap map;
    check(map.set_options(backend.c_str(), {options_.data(), options_.size()}), "setting options");
    py::gil_scoped_release free;
    check(module_.load(map), "loading " + path);
  }

  void load_method(const std::string& method) {
    py::gil_scoped_release free;
    check(module_.load_method(method), "loading method " + method);
  }

  std::vector<py::array> execute(const std::string& method, const std::vector<py::array>& given) {
    std::vector<py::array> arrays;
    std::vector<std::vector<SizesType>> sizes;
    std::vector<TensorImpl> tensors;
    std::vector<rt::EValue> values;
    arrays.reserve(given.size()), sizes.reserve(given.size()), tensors.reserve(given.size());
    for (const auto& value : given) {
      arrays.push_back(py::array::ensure(value, py::array::c_style));
      const py::array& array = arrays.back();
      sizes.emplace_back(array.shape(), array.shape() + array.ndim());
      tensors.emplace_back(
          type_of(array), array.ndim(), sizes.back().data(), const_cast<void*>(array.data()));
      values.emplace_back(Tensor(&tensors.back()));
    }
    rt::Error error = rt::Error::Ok;
    std::vector<rt::EValue> answers;
    {
      py::gil_scoped_release free;
      auto result = module_.execute(method, values);
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
  std::vector<rt::BackendOption> options_;
};

}  // namespace

PYBIND11_MODULE(module, m) {
  py::class_<LoadedModule>(m, "Module")
      .def(py::init<const std::string&, const std::string&, const py::dict&>())
      .def("load_method", &LoadedModule::load_method)
      .def("execute", &LoadedModule::execute);
}
