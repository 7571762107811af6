// A recording stand-in for libcudart.so.13. Device memory is host memory, kernels are host functions
// that run when they are launched or replayed. It keeps the rules of stream capture: what a real
// driver would refuse during a capture is refused here, and the capture is then invalid.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kUnsupported = 900,
              kInvalidated = 901, kUnjoined = 904;

struct UserObject {
  void* object;
  void (*release)(void*);
};

struct Copy {
  void* to;
  const void* from;
  size_t bytes;
  bool enabled = true;
};

struct Graph {
  std::vector<std::function<void()>> nodes;
  std::set<std::pair<size_t, size_t>> edges;  // of those that are captured; nodes count from 1
  std::vector<std::shared_ptr<UserObject>> kept;
};

struct Stream;
struct Capture {
  unsigned long long id;
  int mode;
  size_t thread;
  Stream* origin;
  std::shared_ptr<Graph> graph = std::make_shared<Graph>();
  bool valid = true;
  long work = 0;
  std::map<Stream*, long> latest;  // of each stream the number of its last work
};

// What a stream has seen of the others during a capture: of each its latest work.
using Seen = std::map<Stream*, long>;
using Nodes = std::set<size_t>;

struct Stream {
  int number;
  Capture* capture = nullptr;
  Nodes last;  // of the graph under capture: those that the next one follows
  Seen seen;
};

std::atomic<int> next_event{1};

struct Event {
  int number = next_event++;
  Capture* capture = nullptr;
  Stream* stream = nullptr;
  Nodes last;
  Seen seen;
  std::chrono::steady_clock::time_point time;
};

std::recursive_mutex mutex;
std::ostringstream records;
std::set<Capture*> captures;
std::map<void*, size_t> allocations;
size_t allocated = 0;
unsigned long long next_capture = 1;
int next_stream = 1;
Stream null_stream{0};
thread_local int thread_mode = 0;
thread_local int current_device = 0;
bool lost = false;
size_t memory_limit = static_cast<size_t>(-1);

size_t ThisThread() {
  static std::atomic<size_t> next{1};
  thread_local size_t id = next++;
  return id;
}

void Record(const std::string& what) { records << ThisThread() << ' ' << what << '\n'; }

Stream* Get(void* stream) { return stream ? static_cast<Stream*>(stream) : &null_stream; }

// Refuses what may not be called while a capture that concerns this thread is under way.
bool Forbidden(const char* what) {
  if (thread_mode == 2) return false;
  for (Capture* capture : captures) {
    bool concerned = capture->mode == 0 || (capture->mode == 1 && capture->thread == ThisThread());
    if (!concerned) continue;
    capture->valid = false;
    Record(std::string("forbidden ") + what);
    return true;
  }
  return false;
}

int Enqueue(void* handle, const std::string& what, std::function<void()> work) {
  std::unique_lock<std::recursive_mutex> lock(mutex);
  Stream* stream = Get(handle);
  if (!captures.count(stream->capture)) stream->capture = nullptr;  // has ended
  if (stream->capture) {
    if (!stream->capture->valid) return kInvalidated;
    Graph& graph = *stream->capture->graph;
    graph.nodes.push_back(std::move(work));
    for (size_t node : stream->last) graph.edges.emplace(node, graph.nodes.size());
    stream->last = {graph.nodes.size()};
    stream->seen[stream] = ++stream->capture->work;
    stream->capture->latest[stream] = stream->capture->work;
    Record("captured " + what + " stream=" + std::to_string(stream->number));
    return kSuccess;
  }
  if (stream == &null_stream && Forbidden("work on the legacy stream")) return kUnsupported;
  Record(what + " stream=" + std::to_string(stream->number));
  lock.unlock();  // work of two threads overlaps, so that shared workspace shows in the results
  work();
  return kSuccess;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default")))

// For the tests and for fake kernels.
API const char* fake_cuda_log() {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  static std::string text;
  text = records.str();
  records.str("");
  return text.c_str();
}
API void fake_cuda_lose() { lost = true; }
API void fake_cuda_limit_memory(size_t bytes) { memory_limit = bytes; }
// Runs fn(copy of data) when the work is due.
API int fake_cuda_launch(void* stream, const char* name, void (*fn)(void*), const void* data,
                         size_t size) {
  auto copy = std::make_shared<std::vector<char>>(static_cast<const char*>(data),
                                                  static_cast<const char*>(data) + size);
  return Enqueue(stream, std::string("kernel ") + name, [fn, copy] { fn(copy->data()); });
}

API const char* cudaGetErrorString(int error) {
  static thread_local char text[32];
  std::snprintf(text, sizeof(text), "fake error %d", error);
  return text;
}
API const char* cudaGetErrorName(int) { return "fakeError"; }
API int cudaPeekAtLastError() { return kSuccess; }
API int cudaGetLastError() { return kSuccess; }
API int cudaGetDeviceCount(int* count) { return *count = 2, kSuccess; }
API int cudaGetDevice(int* device) { return *device = current_device, kSuccess; }
API int cudaSetDevice(int device) { return current_device = device, kSuccess; }
API int cudaDeviceGetAttribute(int* value, int attribute, int device) {
  const char* arch = std::getenv("FAKE_CUDA_ARCH");
  int number = arch ? std::atoi(arch) : 90;
  std::map<int, int> values = {{1, 1024},         {8, 49152},        {10, 32},      {16, 132},
                               {36, 3201000},     {37, 6144},        {38, 1 << 20}, {39, 2048},
                               {75, number / 10}, {76, number % 10}, {97, 232448}};
  auto found = values.find(attribute);
  *value = found == values.end() ? 1 : found->second;
  return kSuccess;
}
API int cudaGetDeviceProperties(char* properties, int) {
  std::strcpy(properties, "Fake H200");
  size_t memory = size_t{1} << 37;
  std::memcpy(properties + 288, &memory, sizeof(memory));
  return kSuccess;
}
API int cudaDriverGetVersion(int* version) { return *version = 13000, kSuccess; }
API int cudaRuntimeGetVersion(int* version) { return *version = 13000, kSuccess; }

API int cudaMalloc(void** pointer, size_t bytes) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (Forbidden("cudaMalloc")) return kUnsupported;
  if (allocated + bytes > memory_limit) return kOutOfMemory;
  *pointer = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  allocations[*pointer] = bytes;
  allocated += bytes;
  Record("malloc " + std::to_string(bytes));
  return kSuccess;
}
API int cudaFree(void* pointer) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (Forbidden("cudaFree")) return kUnsupported;
  Record("free");
  allocated -= allocations[pointer];
  allocations.erase(pointer);
  std::free(pointer);
  return kSuccess;
}
API int cudaMallocHost(void** pointer, size_t bytes) {
  return *pointer = std::malloc(bytes), kSuccess;
}
API int cudaFreeHost(void* pointer) { return std::free(pointer), kSuccess; }
API int cudaMemGetInfo(size_t* free, size_t* total) {
  return *free = *total = size_t{1} << 37, kSuccess;
}
API int cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, void* stream) {
  return Enqueue(stream, "memcpy_peer", [=] { std::memmove(to, from, bytes); });
}
API int cudaMemcpy(void* to, const void* from, size_t bytes, int) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (Forbidden("cudaMemcpy")) return kUnsupported;
  Record("memcpy");
  std::memmove(to, from, bytes);
  return kSuccess;
}
API int cudaMemcpyAsync(void* to, const void* from, size_t bytes, int, void* stream) {
  return Enqueue(stream, "memcpy_async", [=] { std::memmove(to, from, bytes); });
}
API int cudaMemset(void* to, int value, size_t bytes) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (Forbidden("cudaMemset")) return kUnsupported;
  Record("memset");
  std::memset(to, value, bytes);
  return kSuccess;
}
API int cudaMemsetAsync(void* to, int value, size_t bytes, void* stream) {
  return Enqueue(stream, "memset_async", [=] { std::memset(to, value, bytes); });
}
API int cudaDeviceSynchronize() {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  if (!captures.empty()) {  // whatever the mode, and whichever thread captures
    for (Capture* capture : captures) capture->valid = false;
    Record("forbidden cudaDeviceSynchronize");
    return kUnsupported;
  }
  if (lost) return 700;
  Record("device_synchronize");
  return kSuccess;
}

API int cudaStreamCreateWithFlags(void** stream, unsigned) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  *stream = new Stream{next_stream++};
  Record("stream_create " + std::to_string(Get(*stream)->number));
  return kSuccess;
}
API int cudaStreamCreate(void** stream) { return cudaStreamCreateWithFlags(stream, 0); }
API int cudaStreamDestroy(void*) { return kSuccess; }
API int cudaStreamSynchronize(void* handle) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Stream* stream = Get(handle);
  if (stream->capture) {
    stream->capture->valid = false;
    return kUnsupported;
  }
  Record("stream_synchronize " + std::to_string(stream->number));
  return kSuccess;
}
API int cudaStreamBeginCapture(void* handle, int mode) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Stream* stream = Get(handle);
  if (stream == &null_stream || stream->capture) return kUnsupported;
  stream->capture = new Capture{next_capture++, mode, ThisThread(), stream};
  stream->seen.clear();
  stream->last.clear();
  captures.insert(stream->capture);
  Record("begin_capture stream=" + std::to_string(stream->number));
  return kSuccess;
}
API int cudaStreamEndCapture(void* handle, void** graph) {
  // Captures take a while, so that other threads come in between.
  if (std::getenv("FAKE_CUDA_SLOW_CAPTURE"))
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Stream* stream = Get(handle);
  Capture* capture = stream->capture;
  if (!capture || capture->origin != stream) return kInvalidValue;
  captures.erase(capture);
  stream->capture = nullptr;
  *graph = nullptr;
  if (!capture->valid) return kInvalidated;
  for (auto [other, work] : capture->latest) {
    if (stream->seen[other] < work) return kUnjoined;
  }
  *graph = new std::shared_ptr<Graph>(capture->graph);
  capture->graph.reset();
  Record("end_capture");
  return kSuccess;
}
API int cudaStreamGetCaptureInfo(void* handle, int* status, unsigned long long* id, void** graph,
                                 void* const** predecessors, const void**, size_t* count) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Stream* stream = Get(handle);
  if (stream->capture && !captures.count(stream->capture)) stream->capture = nullptr;  // ended
  if (!stream->capture) return *status = 0, kSuccess;
  *status = stream->capture->valid ? 1 : 2;
  *id = stream->capture->id;
  *graph = &stream->capture->graph;
  static thread_local std::vector<void*> handles;
  handles.clear();
  for (size_t node : stream->last) handles.push_back(reinterpret_cast<void*>(node));
  if (predecessors) *predecessors = handles.data(), *count = handles.size();
  return kSuccess;
}
API int cudaGraphAddEmptyNode(void** node, void* handle, void* const* before, size_t count) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Graph& graph = **static_cast<std::shared_ptr<Graph>*>(handle);
  graph.nodes.push_back([] {});
  for (size_t i = 0; i < count; ++i)
    graph.edges.emplace(reinterpret_cast<size_t>(before[i]), graph.nodes.size());
  *node = reinterpret_cast<void*>(graph.nodes.size());
  return kSuccess;
}
API int cudaGraphGetEdges(void* handle, void** from, void** to, void*, size_t* count) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  const Graph& graph = **static_cast<std::shared_ptr<Graph>*>(handle);
  *count = graph.edges.size();
  if (from == nullptr) return kSuccess;
  for (auto [source, target] : graph.edges) {
    *from++ = reinterpret_cast<void*>(source);
    *to++ = reinterpret_cast<void*>(target);
  }
  return kSuccess;
}
API int cudaGraphRemoveDependencies(void* handle, void* const* from, void* const* to, const void*,
                                    size_t count) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Graph& graph = **static_cast<std::shared_ptr<Graph>*>(handle);
  for (size_t i = 0; i < count; ++i) {
    auto edge = std::pair(reinterpret_cast<size_t>(from[i]), reinterpret_cast<size_t>(to[i]));
    if (!graph.edges.erase(edge)) return kInvalidValue;
  }
  return kSuccess;
}
API int cudaStreamUpdateCaptureDependencies(void* handle, void** nodes, const void*, size_t,
                                            unsigned) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Stream* stream = Get(handle);
  stream->last = {reinterpret_cast<size_t>(*nodes)};
  stream->seen[stream] = stream->capture->latest[stream] = ++stream->capture->work;
  Record("captured empty stream=" + std::to_string(stream->number));
  return kSuccess;
}
API int cudaThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, thread_mode);
  return kSuccess;
}

API int cudaEventCreateWithFlags(void** event, unsigned) { return *event = new Event, kSuccess; }
API int cudaEventCreate(void** event) { return *event = new Event, kSuccess; }
API int cudaEventDestroy(void* event) { return delete static_cast<Event*>(event), kSuccess; }
API int cudaEventRecord(void* handle, void* stream_handle) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto* event = static_cast<Event*>(handle);
  event->stream = Get(stream_handle);
  if (!captures.count(event->stream->capture)) event->stream->capture = nullptr;
  event->capture = event->stream->capture;
  event->seen = event->stream->seen;
  event->last = event->stream->last;
  Record("event_record " + std::to_string(event->number) +
         " stream=" + std::to_string(event->stream->number));
  event->time = std::chrono::steady_clock::now();
  return kSuccess;
}
API int cudaEventRecordWithFlags(void* handle, void* stream_handle, unsigned flags) {
  auto* event = static_cast<Event*>(handle);
  if (flags == 0) return cudaEventRecord(handle, stream_handle);
  if (Get(stream_handle)->capture == nullptr) return kInvalidValue;
  return Enqueue(stream_handle, "event_record",
                 [event] { event->time = std::chrono::steady_clock::now(); });
}
API int cudaEventSynchronize(void*) { return kSuccess; }
API int cudaEventElapsedTime(float* ms, void* from, void* to) {
  std::chrono::duration<float, std::milli> elapsed =
      static_cast<Event*>(to)->time - static_cast<Event*>(from)->time;
  return *ms = elapsed.count(), kSuccess;
}
API int cudaStreamWaitEvent(void* handle, void* event_handle, unsigned) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Stream* stream = Get(handle);
  auto* event = static_cast<Event*>(event_handle);
  Record("event_wait " + std::to_string(event->number) +
         " stream=" + std::to_string(stream->number));
  if (event->capture && captures.count(event->capture)) {
    if (stream->capture != event->capture) {
      stream->capture = event->capture;
      stream->seen.clear();
      stream->last.clear();
      stream->capture->latest[stream] = ++stream->capture->work;  // in the capture from now on
      stream->seen[stream] = stream->capture->work;
    }
    for (auto [other, work] : event->seen)
      stream->seen[other] = std::max(stream->seen[other], work);
    stream->last.insert(event->last.begin(), event->last.end());
  }
  return kSuccess;
}

API int cudaGraphInstantiate(void** exec, void* graph, unsigned long long) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  const Graph& instantiated = **static_cast<std::shared_ptr<Graph>*>(graph);
  Record("instantiate nodes=" + std::to_string(instantiated.nodes.size()) +
         " edges=" + std::to_string(instantiated.edges.size()));
  *exec = new std::shared_ptr<Graph>(*static_cast<std::shared_ptr<Graph>*>(graph));
  return kSuccess;
}
API int cudaGraphLaunch(void* exec, void*) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  Record("graph_launch");
  for (auto& node : (*static_cast<std::shared_ptr<Graph>*>(exec))->nodes) node();
  return kSuccess;
}
API int cudaGraphCreate(void** graph, unsigned) {
  *graph = new std::shared_ptr<Graph>(std::make_shared<Graph>());
  return kSuccess;
}
API int cudaGraphAddChildGraphNode(void**, void* graph, void* const*, size_t, void* child) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto called = *static_cast<std::shared_ptr<Graph>*>(child);
  (*static_cast<std::shared_ptr<Graph>*>(graph))->nodes.push_back([called] {
    Record("child_graph");
    for (auto& node : called->nodes) node();
  });
  return kSuccess;
}
API int cudaGraphAddMemcpyNode1D(void** node, void* graph, void* const*, size_t, void* to,
                                 const void* from, size_t bytes, int) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto* copy = new Copy{to, from, bytes};  // the graphs of a test are few
  (*static_cast<std::shared_ptr<Graph>*>(graph))->nodes.push_back([copy] {
    if (!copy->enabled) return;
    Record("memcpy_node");
    std::memmove(copy->to, copy->from, copy->bytes);
  });
  *node = copy;
  return kSuccess;
}
API int cudaGraphExecMemcpyNodeSetParams1D(void*, void* node, void* to, const void* from,
                                           size_t bytes, int) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  auto* copy = static_cast<Copy*>(node);
  if (std::getenv("FAKE_CUDA_FIXED_COPIES")) return kInvalidValue;
  Record("memcpy_set");
  *copy = {to, from, bytes, copy->enabled};
  return kSuccess;
}
API int cudaGraphNodeSetEnabled(void*, void* node, unsigned enabled) {
  std::lock_guard<std::recursive_mutex> lock(mutex);
  static_cast<Copy*>(node)->enabled = enabled != 0;
  return kSuccess;
}
API int cudaGraphDestroy(void* graph) {
  delete static_cast<std::shared_ptr<Graph>*>(graph);
  return kSuccess;
}
API int cudaGraphExecDestroy(void* exec) {
  delete static_cast<std::shared_ptr<Graph>*>(exec);
  return kSuccess;
}
API int cudaUserObjectCreate(void** handle, void* object, void (*release)(void*), unsigned,
                             unsigned) {
  *handle = new std::shared_ptr<UserObject>(new UserObject{object, release}, [](UserObject* it) {
    it->release(it->object);
    delete it;
  });
  return kSuccess;
}
API int cudaUserObjectRelease(void* handle, unsigned) {
  delete static_cast<std::shared_ptr<UserObject>*>(handle);
  return kSuccess;
}
API int cudaGraphRetainUserObject(void* graph, void* handle, unsigned, unsigned) {
  auto* object = static_cast<std::shared_ptr<UserObject>*>(handle);
  (*static_cast<std::shared_ptr<Graph>*>(graph))->kept.push_back(*object);
  delete object;  // the reference was moved
  return kSuccess;
}
