// The C API of <convoy/convoy.h>: no exception leaves it, and every error has a text.
#include <convoy/convoy.h>
#include <tvm/ffi/error.h>

#include <exception>
#include <stdexcept>
#include <string>

#include "deployed_session.h"

#define CONVOY_EXPORT extern "C" __attribute__((visibility("default")))

struct ConvoyModel {
  std::shared_ptr<const convoy::DeployedModule> module;
};

struct ConvoySession {
  convoy::DeployedSession session;
};

namespace {

using convoy::TensorSpec;

std::string& LastError() {
  static thread_local std::string text;
  return text;
}

ConvoyStatus StatusOf(const std::string& kind) {
  if (kind == "InvalidOption") return CONVOY_INVALID_ARGUMENT;
  if (kind == "CorruptArtefact" || kind == "InvalidWorkload") return CONVOY_CORRUPT_FILE;
  if (kind == "LibraryMissing" || kind == "LibraryVersionMismatch") return CONVOY_MISSING_LIBRARY;
  if (kind == "NoGpu" || kind == "WrongDevice") return CONVOY_WRONG_DEVICE;
  return CONVOY_FAILED;
}

// Runs `body`; what it throws becomes a status and this thread's error text.
template <typename Body>
ConvoyStatus Guarded(Body body) {
  try {
    body();
    LastError().clear();
    return CONVOY_OK;
  } catch (const tvm::ffi::Error& error) {
    LastError() = error.kind() + ": " + error.message();
    return StatusOf(error.kind());
  } catch (const std::exception& error) {
    LastError() = error.what();
  } catch (...) {
    LastError() = "an exception of an unknown type";
  }
  return CONVOY_FAILED;
}

template <typename T>
T* NotNull(T* pointer, const char* name) {
  if (pointer == nullptr) TVM_FFI_THROW(InvalidOption) << "a null pointer for " << name;
  return pointer;
}

const TensorSpec& At(const std::vector<TensorSpec>& specs, int32_t index, const char* what) {
  if (index < 0 || static_cast<size_t>(index) >= specs.size()) {
    TVM_FFI_THROW(InvalidOption) << what << " " << index << " of " << specs.size();
  }
  return specs[index];
}

void Fill(const TensorSpec& spec, ConvoyTensorInfo* info) {
  *info = {spec.name.c_str(), spec.dtype_name.c_str(),
           spec.shape.data(), static_cast<int32_t>(spec.shape.size()),
           spec.dtype.code,   spec.dtype.bits,
           spec.dtype.lanes,  spec.bytes};
}

int32_t Find(const std::vector<TensorSpec>& specs, const char* name) {
  for (size_t i = 0; name != nullptr && i < specs.size(); ++i) {
    if (specs[i].name == name) return static_cast<int32_t>(i);
  }
  return -1;
}

template <typename... Source>
ConvoyStatus Load(ConvoyModel** model, Source... source) {
  return Guarded([&] {
    *NotNull(model, "the model") = nullptr;
    auto loaded = convoy::LoadDeployedModule(source...);
    *model = new ConvoyModel{std::make_shared<const convoy::DeployedModule>(std::move(loaded))};
  });
}

convoy::DeployedSession& Session(ConvoySession* session) {
  return NotNull(session, "the session")->session;
}

}  // namespace

CONVOY_EXPORT int32_t convoy_api_version(void) { return CONVOY_API_VERSION; }

CONVOY_EXPORT const char* convoy_last_error(void) { return LastError().c_str(); }

CONVOY_EXPORT ConvoyStatus convoy_model_load(const char* path, ConvoyModel** model) {
  return path == nullptr ? Guarded([] { NotNull<void>(nullptr, "the path"); })
                         : Load(model, std::string(path));
}

CONVOY_EXPORT ConvoyStatus convoy_model_load_memory(const void* data, size_t bytes,
                                                    ConvoyModel** model) {
  return data == nullptr ? Guarded([] { NotNull<void>(nullptr, "the data"); })
                         : Load(model, data, bytes);
}

CONVOY_EXPORT void convoy_model_free(ConvoyModel* model) { delete model; }

CONVOY_EXPORT const char* convoy_model_target(const ConvoyModel* model) {
  return model->module->target.c_str();
}

CONVOY_EXPORT int32_t convoy_model_num_inputs(const ConvoyModel* model) {
  return static_cast<int32_t>(model->module->inputs.size());
}

CONVOY_EXPORT int32_t convoy_model_num_outputs(const ConvoyModel* model) {
  return static_cast<int32_t>(model->module->outputs.size());
}

CONVOY_EXPORT ConvoyStatus convoy_model_input(const ConvoyModel* model, int32_t index,
                                              ConvoyTensorInfo* info) {
  return Guarded([&] {
    Fill(At(NotNull(model, "the model")->module->inputs, index, "input"), NotNull(info, "info"));
  });
}

CONVOY_EXPORT ConvoyStatus convoy_model_output(const ConvoyModel* model, int32_t index,
                                               ConvoyTensorInfo* info) {
  return Guarded([&] {
    Fill(At(NotNull(model, "the model")->module->outputs, index, "output"), NotNull(info, "info"));
  });
}

CONVOY_EXPORT int32_t convoy_model_find_input(const ConvoyModel* model, const char* name) {
  return Find(model->module->inputs, name);
}

CONVOY_EXPORT int32_t convoy_model_find_output(const ConvoyModel* model, const char* name) {
  return Find(model->module->outputs, name);
}

CONVOY_EXPORT ConvoyStatus convoy_session_create(const ConvoyModel* model, int32_t device,
                                                 ConvoySession** session) {
  return Guarded([&] {
    *NotNull(session, "the session") = nullptr;
    *session = new ConvoySession{{NotNull(model, "the model")->module, device}};
  });
}

CONVOY_EXPORT void convoy_session_free(ConvoySession* session) {
  Guarded([&] { delete session; });
}

CONVOY_EXPORT ConvoyStatus convoy_session_set_input(ConvoySession* session, int32_t index,
                                                    const void* data, size_t bytes, void* stream) {
  return Guarded([&] {
    At(Session(session).module().inputs, index, "input");
    Session(session).SetInput(index, NotNull(data, "the data"), bytes, stream);
  });
}

CONVOY_EXPORT ConvoyStatus convoy_session_bind_input(ConvoySession* session, int32_t index,
                                                     void* data, size_t bytes) {
  return Guarded([&] {
    At(Session(session).module().inputs, index, "input");
    Session(session).BindInput(index, NotNull(data, "the data"), bytes);
  });
}

CONVOY_EXPORT ConvoyStatus convoy_session_run(ConvoySession* session, void* stream) {
  return Guarded([&] { Session(session).Run(stream); });
}

CONVOY_EXPORT ConvoyStatus convoy_session_get_output(ConvoySession* session, int32_t index,
                                                     void* data, size_t bytes, void* stream) {
  return Guarded([&] {
    At(Session(session).module().outputs, index, "output");
    Session(session).GetOutput(index, NotNull(data, "the data"), bytes, stream);
  });
}

CONVOY_EXPORT ConvoyStatus convoy_session_output_data(ConvoySession* session, int32_t index,
                                                      void** data) {
  return Guarded([&] {
    At(Session(session).module().outputs, index, "output");
    *NotNull(data, "the data") = Session(session).OutputData(index);
  });
}
