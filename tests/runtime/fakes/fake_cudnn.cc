// A recording stand-in for libcudnn.so.9: descriptors are bags of attributes, an execution adds one
// kernel to the stream of its handle, which writes the engine's number into its output.
//
// FAKE_CUDNN_VERSION is the version that it claims; engines up to FAKE_CUDNN_ENGINES exist; engine
// numbers from 50 on need 4 KiB of workspace. With FAKE_CUDNN_GEOMETRY the sizes and strides of
// tensors and what describes convolutions are recorded, by attribute.
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "journal.h"

namespace {

struct Descriptor {
  int type;
  std::map<int, std::vector<char>> attributes;
  std::atomic<int> users{0};
  int64_t engine = -1;
};

struct Handle {
  void* stream = nullptr;
  std::atomic<int> users{0};
};

struct Execution {
  int64_t engine;
  void* output;
  void* workspace;
};

constexpr int kEngine = 2, kConfig = 3, kPlan = 5, kPack = 16;

template <typename T>
T Read(Descriptor* descriptor, int attribute) {
  T value{};
  auto it = descriptor->attributes.find(attribute);
  if (it != descriptor->attributes.end()) {
    std::memcpy(&value, it->second.data(), std::min(sizeof(T), it->second.size()));
  }
  return value;
}

std::string Json(int64_t engine) {
  return "version=" + std::to_string(Environment("FAKE_CUDNN_VERSION", 91900)) +
         " engine=" + std::to_string(engine);
}

size_t SizeOf(int type) {
  switch (type) {
    case 2:   // boolean
    case 24:  // char
      return 1;
    case 0:   // handle
    case 3:   // int64
    case 5:   // double
    case 6:   // pointer
    case 15:  // descriptor
      return 8;
    default: return 4;
  }
}

}  // namespace

API const char* fake_cudnn_log() { return TakeRecords(); }

API size_t cudnnGetVersion() { return Environment("FAKE_CUDNN_VERSION", 91900); }
API size_t cudnnGetCudartVersion() { return 13000; }
API const char* cudnnGetErrorString(int status) { return status ? "FAKE_STATUS" : "SUCCESS"; }
API void cudnnGetLastErrorString(char* text, size_t size) {
  std::snprintf(text, size, "fake words");
}
API int cudnnCreate(Handle** handle) {
  Record("create");
  return *handle = new Handle, 0;
}
API int cudnnSetStream(Handle* handle, void* stream) {
  Record("set_stream");
  return handle->stream = stream, 0;
}
API int cudnnBackendCreateDescriptor(int type, void** descriptor) {
  Record("descriptor " + std::to_string(type));
  auto* made = new Descriptor;
  made->type = type;
  return *descriptor = made, 0;
}
API int cudnnBackendDestroyDescriptor(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return 0;
}
API int cudnnBackendSetAttribute(void* raw, int attribute, int type, int64_t count,
                                 const void* values) {
  auto* bytes = static_cast<const char*>(values);
  bool geometry = (attribute >= 103 && attribute <= 106) || attribute == 902 || attribute == 903;
  if (geometry && Environment("FAKE_CUDNN_GEOMETRY", 0)) {
    std::string text = "attribute " + std::to_string(attribute);
    for (int64_t i = 0; i < count; ++i) {
      text += " " + std::to_string(static_cast<const int64_t*>(values)[i]);
    }
    Record(text);
  }
  static_cast<Descriptor*>(raw)->attributes[attribute].assign(bytes, bytes + count * SizeOf(type));
  return 0;
}
API int cudnnBackendFinalize(void* raw) {
  auto* descriptor = static_cast<Descriptor*>(raw);
  if (descriptor->type == kEngine) {
    descriptor->engine = Read<int64_t>(descriptor, 1301);
    return descriptor->engine > Environment("FAKE_CUDNN_ENGINES", 100) ? 3000 : 0;
  }
  if (descriptor->type == kConfig) {
    descriptor->engine = Read<Descriptor*>(descriptor, 300)->engine;
  } else if (descriptor->type == kPlan) {
    auto json = descriptor->attributes.find(405);
    if (json != descriptor->attributes.end()) {
      std::string text(json->second.begin(), json->second.end());
      size_t at = text.find("engine=");
      descriptor->engine = at == std::string::npos ? -1 : std::atoll(text.c_str() + at + 7);
      Record("restore");
      return text == Json(descriptor->engine) ? 0 : 1002;
    }
    Record("build");
    descriptor->engine = Read<Descriptor*>(descriptor, 401)->engine;
  }
  return 0;
}
API int cudnnBackendGetAttribute(void* raw, int attribute, int, int64_t count, int64_t* size,
                                 void* values) {
  auto* descriptor = static_cast<Descriptor*>(raw);
  if (descriptor->type == kPlan && attribute == 402) {
    *static_cast<int64_t*>(values) = descriptor->engine >= 50 ? 4096 : 0;
    return *size = 1, 0;
  }
  if (descriptor->type == kPlan && attribute == 405) {
    std::string text = Json(descriptor->engine);
    *size = static_cast<int64_t>(text.size());
    if (count) std::memcpy(values, text.data(), text.size());
    return 0;
  }
  return 3000;
}
API int cudnnBackendExecute(Handle* handle, void* raw_plan, void* raw_pack) {
  auto* plan = static_cast<Descriptor*>(raw_plan);
  auto* pack = static_cast<Descriptor*>(raw_pack);
  if (plan->users++ != 0) Record("VIOLATION: two threads in one plan");
  if (handle->users++ != 0) Record("VIOLATION: two threads in one handle");
  const std::vector<char>& pointers = pack->attributes[1001];
  const std::vector<char>& ids = pack->attributes[1000];
  Execution execution{plan->engine, nullptr, Read<void*>(pack, 1003)};
  int64_t last = 0;  // the output is the last operand, what the graph added itself counts from 50
  for (size_t at = 0; at < ids.size(); at += 8) {
    int64_t id;
    std::memcpy(&id, ids.data() + at, 8);
    if (id >= 50) {
      char* added;
      std::memcpy(&added, pointers.data() + at, 8);
      Record(std::string("added operand ") + (added[0] == 0 ? "of zeros" : "of something"));
    } else if (id > last) {
      std::memcpy(&execution.output, pointers.data() + at, 8);
      last = id;
    }
  }
  char text[96];
  std::snprintf(text, sizeof(text), "execute engine=%ld workspace=%p", plan->engine,
                execution.workspace);
  Record(text);
  if ((execution.workspace == nullptr) != (plan->engine < 50)) Record("VIOLATION: workspace");
  using Launch = int (*)(void*, const char*, void (*)(void*), const void*, size_t);
  static auto launch = reinterpret_cast<Launch>(dlsym(RTLD_DEFAULT, "fake_cuda_launch"));
  int error = launch(
      handle->stream, "cudnn",
      [](void* data) {
        auto* it = static_cast<Execution*>(data);
        float value = static_cast<float>(it->engine);
        std::memcpy(it->output, &value, sizeof(value));
      },
      &execution, sizeof(execution));
  --handle->users;
  --plan->users;
  return error ? 5003 : 0;
}
