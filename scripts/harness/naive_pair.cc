// Two independent convolutions on two streams, the way it is usually written first: a cuDNN handle
// for each stream, and in every call descriptors, a workspace from cudaMalloc, and cudaFree.
// cudaFree waits for the device, so the streams never overlap. pair.py compiles and runs it.
//
//   naive_pair N C SIZE K   two 3x3 convolutions with padding 1 of N x C x SIZE x SIZE in float16;
//                           a line of JSON for each algorithm
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

#define CHECK(call)                                           \
  do {                                                        \
    int status = static_cast<int>(call);                      \
    if (status != 0) {                                        \
      std::fprintf(stderr, "%s: status %d\n", #call, status); \
      std::exit(1);                                           \
    }                                                         \
  } while (false)

struct Shape {
  int n, c, size, k;
};

struct Branch {
  cudaStream_t stream;
  cudnnHandle_t handle;
  void *x, *w, *y;
};

struct Algorithm {
  const char* name;
  cudnnConvolutionFwdAlgo_t algorithm;
  cudnnTensorFormat_t format;
};

// One convolution with everything made and thrown away again.
void Convolve(const Branch& branch, const Shape& s, const Algorithm& way) {
  cudnnTensorDescriptor_t x, y;
  cudnnFilterDescriptor_t w;
  cudnnConvolutionDescriptor_t conv;
  CHECK(cudnnCreateTensorDescriptor(&x));
  CHECK(cudnnCreateTensorDescriptor(&y));
  CHECK(cudnnCreateFilterDescriptor(&w));
  CHECK(cudnnCreateConvolutionDescriptor(&conv));
  CHECK(cudnnSetTensor4dDescriptor(x, way.format, CUDNN_DATA_HALF, s.n, s.c, s.size, s.size));
  CHECK(cudnnSetTensor4dDescriptor(y, way.format, CUDNN_DATA_HALF, s.n, s.k, s.size, s.size));
  CHECK(cudnnSetFilter4dDescriptor(w, CUDNN_DATA_HALF, way.format, s.k, s.c, 3, 3));
  CHECK(cudnnSetConvolution2dDescriptor(conv, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
                                        CUDNN_DATA_FLOAT));
  CHECK(cudnnSetConvolutionMathType(conv, CUDNN_TENSOR_OP_MATH));
  size_t bytes = 0;
  CHECK(
      cudnnGetConvolutionForwardWorkspaceSize(branch.handle, x, w, conv, y, way.algorithm, &bytes));
  bytes = std::max<size_t>(bytes, 1 << 20);  // some algorithms need none; such code has one anyway
  void* workspace = nullptr;
  CHECK(cudaMalloc(&workspace, bytes));
  const float one = 1, zero = 0;
  CHECK(cudnnConvolutionForward(branch.handle, &one, x, branch.x, w, branch.w, conv, way.algorithm,
                                workspace, bytes, &zero, y, branch.y));
  CHECK(cudaFree(workspace));
  CHECK(cudnnDestroyTensorDescriptor(x));
  CHECK(cudnnDestroyTensorDescriptor(y));
  CHECK(cudnnDestroyFilterDescriptor(w));
  CHECK(cudnnDestroyConvolutionDescriptor(conv));
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double MicrosecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

Branch MakeBranch(const Shape& s) {
  Branch branch;
  CHECK(cudaStreamCreateWithFlags(&branch.stream, cudaStreamNonBlocking));
  CHECK(cudnnCreate(&branch.handle));
  CHECK(cudnnSetStream(branch.handle, branch.stream));
  size_t pixels = static_cast<size_t>(s.n) * s.size * s.size;
  CHECK(cudaMalloc(&branch.x, 2 * pixels * s.c));
  CHECK(cudaMalloc(&branch.w, static_cast<size_t>(2) * 9 * s.c * s.k));
  CHECK(cudaMalloc(&branch.y, 2 * pixels * s.k));
  CHECK(cudaMemset(branch.x, 0, 2 * pixels * s.c));
  CHECK(cudaMemset(branch.w, 0, static_cast<size_t>(2) * 9 * s.c * s.k));
  return branch;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: naive_pair N C SIZE K\n");
    return 2;
  }
  Shape shape{std::atoi(argv[1]), std::atoi(argv[2]), std::atoi(argv[3]), std::atoi(argv[4])};
  Branch branches[2] = {MakeBranch(shape), MakeBranch(shape)};
  CHECK(cudaDeviceSynchronize());
  const Algorithm ways[] = {
      {"implicit gemm, NCHW", CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_TENSOR_NCHW},
      {"precomputed implicit gemm, NHWC", CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
       CUDNN_TENSOR_NHWC},
  };
  for (const Algorithm& way : ways) {
    auto pair = [&] {
      for (const Branch& branch : branches) Convolve(branch, shape, way);
    };
    auto synchronize = [&] {
      for (const Branch& branch : branches) CHECK(cudaStreamSynchronize(branch.stream));
    };
    for (int i = 0; i < 10; ++i) pair();
    synchronize();
    std::vector<double> latency, sustained;
    for (int i = 0; i < 100; ++i) {
      Clock::time_point start = Clock::now();
      pair();
      synchronize();
      latency.push_back(MicrosecondsSince(start));
    }
    for (int i = 0; i < 10; ++i) {
      Clock::time_point start = Clock::now();
      for (int j = 0; j < 50; ++j) pair();
      synchronize();
      sustained.push_back(MicrosecondsSince(start) / 50);
    }
    std::printf("{\"algorithm\": \"%s\", \"latency_us\": %.3f, \"sustained_us\": %.3f}\n", way.name,
                Median(latency), Median(sustained));
  }
  return 0;
}
