// A kernel library that does not compute but misbehaves: -DFAULT=1 writes outside of any allocation,
// -DFAULT=2 never ends, -DFAULT=3 leaves the output as it was, -DFAULT=4 asks for more workspace than
// there is memory.
#include <convoy/kernel_abi.h>
#include <cuda_runtime.h>

namespace {

__global__ void Misbehave(int* operand, volatile int* never) {
  if (FAULT == 1) *reinterpret_cast<int*>(1ull << 60) = 1;
  if (FAULT == 2) {
    while (*never != 0x5eed) __nanosleep(1000);
    *operand = 1;
  }
}

}  // namespace

extern "C" {

int32_t convoy_kernel_abi(void) { return CONVOY_KERNEL_ABI_VERSION; }
int32_t convoy_kernel_check(const ConvoyShape*) { return 0; }
int64_t convoy_kernel_workspace(const ConvoyShape*) { return FAULT == 4 ? 1ll << 40 : 0; }
int64_t convoy_kernel_state_bytes(void) { return sizeof(ConvoyOperands); }
int32_t convoy_kernel_prepare(const ConvoyShape*, const ConvoyOperands* operands, void* state) {
  *static_cast<ConvoyOperands*>(state) = *operands;
  return 0;
}
int32_t convoy_kernel_launch(const void* state, void* stream) {
  void* d = static_cast<const ConvoyOperands*>(state)->d;
  Misbehave<<<1, 1, 0, static_cast<cudaStream_t>(stream)>>>(static_cast<int*>(d),
                                                            static_cast<volatile int*>(d));
  return cudaGetLastError();
}
int32_t convoy_kernel_footprint(const void*, ConvoyFootprint* footprint) {
  *footprint = {1, 1, 0, 32};
  return 0;
}
const char* convoy_kernel_error(int32_t code) {
  return cudaGetErrorString(static_cast<cudaError_t>(code));
}

}  // extern "C"
