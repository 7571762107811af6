// The part of the CUDA 13 runtime API that the runtime calls, declared here so that it builds where
// no CUDA is installed. tests/runtime/test_abi.py compares every value and signature with the
// installed CUDA headers.
#pragma once

#include <cstddef>

namespace convoy::cuda {

using Error = int;
using Stream = void*;
using Event = void*;
using Graph = void*;
using GraphExec = void*;
using GraphNode = void*;
using UserObject = void*;
using HostFn = void (*)(void*);

constexpr Error kSuccess = 0;
constexpr Error kOutOfMemory = 2;
constexpr Error kStubLibrary = 34;
constexpr Error kInsufficientDriver = 35;
constexpr Error kNoDevice = 100;
constexpr Error kInvalidDevice = 101;
constexpr Error kCaptureUnsupported = 900;
constexpr Error kCaptureImplicit = 906;

// An edge of a graph: how its second node waits for the first one.
struct EdgeData {
  unsigned char from_port, to_port, type, reserved[5];
};

enum DeviceAttribute : int {
  kMultiProcessorCount = 16,
  kMemoryClockRate = 36,
  kGlobalMemoryBusWidth = 37,
  kL2CacheSize = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerBlockOptin = 97,
};

enum CaptureStatus : int { kNotCapturing = 0, kCapturing = 1, kCaptureInvalidated = 2 };
enum CaptureMode : int { kCaptureGlobal = 0, kCaptureThreadLocal = 1, kCaptureRelaxed = 2 };
enum MemcpyKind : int {
  kHostToDevice = 1,
  kDeviceToHost = 2,
  kDeviceToDevice = 3,
  kAnyToAny = 4  // by what the pointers are
};

constexpr unsigned kStreamNonBlocking = 1;
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kEventRecordExternal = 1;
constexpr unsigned kSetCaptureDependencies = 1;
constexpr unsigned kUserObjectNoDestructorSync = 1;
constexpr unsigned kGraphUserObjectMove = 1;

// cudaDeviceProp has some hundred fields that change between versions; name and totalGlobalMem are
// at fixed places. The buffer is larger than any version of the struct.
struct DeviceProperties {
  char name[256];
  unsigned char uuid[16];
  char luid[16];
  size_t total_memory;
  char rest[16384 - 256 - 32 - sizeof(size_t)];
};

// X(name, argument types): all return Error.
#define CONVOY_CUDART_FUNCTIONS(X)                                                                 \
  X(cudaGetLastError, ())                                                                          \
  X(cudaGetDeviceCount, (int*))                                                                    \
  X(cudaGetDevice, (int*))                                                                         \
  X(cudaSetDevice, (int))                                                                          \
  X(cudaDeviceGetAttribute, (int*, ::convoy::cuda::DeviceAttribute, int))                          \
  X(cudaGetDeviceProperties, (::convoy::cuda::DeviceProperties*, int))                             \
  X(cudaDriverGetVersion, (int*))                                                                  \
  X(cudaRuntimeGetVersion, (int*))                                                                 \
  X(cudaMemGetInfo, (size_t*, size_t*))                                                            \
  X(cudaMalloc, (void**, size_t))                                                                  \
  X(cudaFree, (void*))                                                                             \
  X(cudaMemcpy, (void*, const void*, size_t, ::convoy::cuda::MemcpyKind))                          \
  X(cudaMemcpyAsync,                                                                               \
    (void*, const void*, size_t, ::convoy::cuda::MemcpyKind, ::convoy::cuda::Stream))              \
  X(cudaMemset, (void*, int, size_t))                                                              \
  X(cudaMemsetAsync, (void*, int, size_t, ::convoy::cuda::Stream))                                 \
  X(cudaDeviceSynchronize, ())                                                                     \
  X(cudaStreamCreateWithFlags, (::convoy::cuda::Stream*, unsigned))                                \
  X(cudaStreamDestroy, (::convoy::cuda::Stream))                                                   \
  X(cudaStreamSynchronize, (::convoy::cuda::Stream))                                               \
  X(cudaStreamBeginCapture, (::convoy::cuda::Stream, ::convoy::cuda::CaptureMode))                 \
  X(cudaStreamEndCapture, (::convoy::cuda::Stream, ::convoy::cuda::Graph*))                        \
  X(cudaStreamGetCaptureInfo,                                                                      \
    (::convoy::cuda::Stream, ::convoy::cuda::CaptureStatus*, unsigned long long*,                  \
     ::convoy::cuda::Graph*, const ::convoy::cuda::GraphNode**, const void**, size_t*))            \
  X(cudaStreamUpdateCaptureDependencies,                                                           \
    (::convoy::cuda::Stream, ::convoy::cuda::GraphNode*, const void*, size_t, unsigned))           \
  X(cudaThreadExchangeStreamCaptureMode, (::convoy::cuda::CaptureMode*))                           \
  X(cudaEventCreateWithFlags, (::convoy::cuda::Event*, unsigned))                                  \
  X(cudaEventDestroy, (::convoy::cuda::Event))                                                     \
  X(cudaEventRecord, (::convoy::cuda::Event, ::convoy::cuda::Stream))                              \
  X(cudaEventRecordWithFlags, (::convoy::cuda::Event, ::convoy::cuda::Stream, unsigned))           \
  X(cudaEventSynchronize, (::convoy::cuda::Event))                                                 \
  X(cudaEventElapsedTime, (float*, ::convoy::cuda::Event, ::convoy::cuda::Event))                  \
  X(cudaStreamWaitEvent, (::convoy::cuda::Stream, ::convoy::cuda::Event, unsigned))                \
  X(cudaGraphInstantiate, (::convoy::cuda::GraphExec*, ::convoy::cuda::Graph, unsigned long long)) \
  X(cudaGraphLaunch, (::convoy::cuda::GraphExec, ::convoy::cuda::Stream))                          \
  X(cudaGraphCreate, (::convoy::cuda::Graph*, unsigned))                                           \
  X(cudaGraphGetEdges, (::convoy::cuda::Graph, ::convoy::cuda::GraphNode*,                         \
                        ::convoy::cuda::GraphNode*, ::convoy::cuda::EdgeData*, size_t*))           \
  X(cudaGraphRemoveDependencies,                                                                   \
    (::convoy::cuda::Graph, const ::convoy::cuda::GraphNode*, const ::convoy::cuda::GraphNode*,    \
     const ::convoy::cuda::EdgeData*, size_t))                                                     \
  X(cudaGraphAddEmptyNode,                                                                         \
    (::convoy::cuda::GraphNode*, ::convoy::cuda::Graph, const ::convoy::cuda::GraphNode*, size_t)) \
  X(cudaGraphAddChildGraphNode, (::convoy::cuda::GraphNode*, ::convoy::cuda::Graph,                \
                                 const ::convoy::cuda::GraphNode*, size_t, ::convoy::cuda::Graph)) \
  X(cudaGraphAddMemcpyNode1D,                                                                      \
    (::convoy::cuda::GraphNode*, ::convoy::cuda::Graph, const ::convoy::cuda::GraphNode*, size_t,  \
     void*, const void*, size_t, ::convoy::cuda::MemcpyKind))                                      \
  X(cudaGraphExecMemcpyNodeSetParams1D, (::convoy::cuda::GraphExec, ::convoy::cuda::GraphNode,     \
                                         void*, const void*, size_t, ::convoy::cuda::MemcpyKind))  \
  X(cudaGraphNodeSetEnabled, (::convoy::cuda::GraphExec, ::convoy::cuda::GraphNode, unsigned))     \
  X(cudaGraphDestroy, (::convoy::cuda::Graph))                                                     \
  X(cudaGraphExecDestroy, (::convoy::cuda::GraphExec))                                             \
  X(cudaUserObjectCreate,                                                                          \
    (::convoy::cuda::UserObject*, void*, ::convoy::cuda::HostFn, unsigned, unsigned))              \
  X(cudaUserObjectRelease, (::convoy::cuda::UserObject, unsigned))                                 \
  X(cudaGraphRetainUserObject,                                                                     \
    (::convoy::cuda::Graph, ::convoy::cuda::UserObject, unsigned, unsigned))

}  // namespace convoy::cuda
