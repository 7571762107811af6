// What a kernel library exports besides kernel_abi.h where its kernel can start before its
// predecessor in the stream has ended (programmatic dependent launch, sm90).
//
// Such a kernel lets its own successor start at once, and waits for its predecessor before it reads
// what that one writes and before it writes anything itself. Every thread block waits, so that the
// end of a kernel implies the end of all kernels before it.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// convoy_kernel_launch with cudaLaunchAttributeProgrammaticStreamSerialization. With
// `constant_weights` the operand b is read before the wait: no kernel on the device writes it any
// more.
int32_t convoy_kernel_launch_programmatic(const void* state, void* stream,
                                          int32_t constant_weights);

#ifdef __cplusplus
}  // extern "C"
#endif
