// Run compiled networks from C and C++, without Python.
//
//   ConvoyModel* model = NULL;
//   ConvoySession* session = NULL;
//   if (convoy_model_load("network.so", &model) || convoy_session_create(model, 0, &session)) {
//     fprintf(stderr, "%s\n", convoy_last_error());
//   }
//   convoy_session_set_input(session, 0, pixels, bytes, stream);
//   convoy_session_run(session, stream);
//   convoy_session_get_output(session, 0, scores, bytes, stream);
//
// Link with -lconvoy_runtime -ltvm_ffi; `convoy config` prints the flags. At run time the process
// also needs libtvm_runtime.so and, for a module for a GPU, libtvm_runtime_cuda.so, libcudart.so.13
// and, where the network uses them, libcudnn.so.9 and libcublasLt.so.13. The first two are looked
// for the way the dynamic linker does, then in the folders of CONVOY_TVM_LIBRARY_PATH, then where
// Python's site-packages have them beside libconvoy_runtime.so.
//
// Errors: functions return 0, or a ConvoyStatus that says which side has to act; the text is
// convoy_last_error(). No C++ exception leaves the library.
//
// Threads: a model may be used by any number of threads at once. A session is used by one thread at
// a time; give each thread a session of its own. The error text is each thread's own.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CONVOY_API_VERSION 1

typedef enum ConvoyStatus {
  CONVOY_OK = 0,
  CONVOY_INVALID_ARGUMENT = 1,  // the call is wrong: an index, a size, a null pointer
  CONVOY_CORRUPT_FILE = 2,      // not a whole module of this version
  CONVOY_MISSING_LIBRARY = 3,   // TVM's runtime, CUDA, cuDNN or cuBLASLt, or a wrong version
  CONVOY_WRONG_DEVICE = 4,      // no GPU, or one that the module was not built for
  CONVOY_FAILED = 5             // anything else, such as memory that ran out
} ConvoyStatus;

typedef struct ConvoyModel ConvoyModel;
typedef struct ConvoySession ConvoySession;

// An input or output. `code`, `bits` and `lanes` are those of DLPack's DLDataType; `dtype` is the
// same as text, such as "float16". Pointers live as long as the model.
typedef struct ConvoyTensorInfo {
  const char* name;
  const char* dtype;
  const int64_t* shape;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  size_t bytes;  // of the whole compact tensor
} ConvoyTensorInfo;

// CONVOY_API_VERSION of the library.
int32_t convoy_api_version(void);

// Text of this thread's last error; empty where there was none. Valid until the next call.
const char* convoy_last_error(void);

// Loads what export_library wrote, after its checksum was verified: a file, or its bytes, which
// need not be kept. A module is code: load none from those you do not trust.
ConvoyStatus convoy_model_load(const char* path, ConvoyModel** model);
ConvoyStatus convoy_model_load_memory(const void* data, size_t bytes, ConvoyModel** model);
// Null is allowed. Sessions keep what they need of their model.
void convoy_model_free(ConvoyModel* model);

// "cuda" or "llvm" (a module for the CPU).
const char* convoy_model_target(const ConvoyModel* model);
int32_t convoy_model_num_inputs(const ConvoyModel* model);
int32_t convoy_model_num_outputs(const ConvoyModel* model);
ConvoyStatus convoy_model_input(const ConvoyModel* model, int32_t index, ConvoyTensorInfo* info);
ConvoyStatus convoy_model_output(const ConvoyModel* model, int32_t index, ConvoyTensorInfo* info);
// Index of the input or output of that name, -1 where there is none.
int32_t convoy_model_find_input(const ConvoyModel* model, const char* name);
int32_t convoy_model_find_output(const ConvoyModel* model, const char* name);

// An instance with input buffers (zeros) on a device. `device` is the index of the GPU; 0 for a
// module for the CPU.
ConvoyStatus convoy_session_create(const ConvoyModel* model, int32_t device,
                                   ConvoySession** session);
void convoy_session_free(ConvoySession* session);

// `stream` is a cudaStream_t throughout; null is CUDA's default stream, and the only one of a module
// for the CPU, whose calls return when they are done.

// Copies a compact tensor of exactly `bytes` from host or device memory into an input's buffer, in
// order on `stream`. Pinned host memory must stay as it is until the stream has come past it.
ConvoyStatus convoy_session_set_input(ConvoySession* session, int32_t index, const void* data,
                                      size_t bytes, void* stream);
// Uses the caller's memory on the session's device as an input from now on, without a copy; it is
// aligned to 256 bytes and stays valid until another is bound or the session is freed. For each set
// of bound addresses a CUDA graph is captured and kept, for the latest eight.
ConvoyStatus convoy_session_bind_input(ConvoySession* session, int32_t index, void* data,
                                       size_t bytes);

// Enqueues one inference on `stream` and returns. The first run of a session launches its kernels
// one by one; from the second on a CUDA graph is replayed. May be captured into a graph of the
// caller after the first run.
ConvoyStatus convoy_session_run(ConvoySession* session, void* stream);

// Copies an output of the last run to host or device memory, behind the run on `stream`, and waits
// for it.
ConvoyStatus convoy_session_get_output(ConvoySession* session, int32_t index, void* data,
                                       size_t bytes, void* stream);
// Where an output of the last run is on the session's device; the next run may write there or
// elsewhere.
ConvoyStatus convoy_session_output_data(ConvoySession* session, int32_t index, void** data);

#ifdef __cplusplus
}  // extern "C"
#endif
