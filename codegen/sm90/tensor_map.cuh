// Encodes tensor maps on the host. The driver's functions are looked up at run time, so that a
// kernel library does not link against libcuda.
#pragma once

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "library.cuh"

namespace convoy::sm90 {

template <class T>
constexpr CUtensorMapDataType map_type();
template <>
constexpr CUtensorMapDataType map_type<__half>() {
  return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}
template <>
constexpr CUtensorMapDataType map_type<__nv_bfloat16>() {
  return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
}

// The driver's function of that name, null where it has none.
template <class Function>
Function driver_function(const char* name) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found;
  cudaError_t error =
      cudaGetDriverEntryPointByVersion(name, &address, 12000, cudaEnableDefault, &found);
  bool ok = error == cudaSuccess && found == cudaDriverEntryPointSuccess;
  return ok ? reinterpret_cast<Function>(address) : nullptr;
}

inline int32_t from_driver(CUresult result) {
  return result == CUDA_SUCCESS ? int32_t(kOk) : kDriver + int32_t(result);
}

// A dense or strided tensor of kRank dimensions, innermost first, of 16-bit elements. `stride`
// counts elements and leaves out the innermost one; `box` is what one copy moves.
template <class T, int kRank>
int32_t encode_tiled(CUtensorMap* map, const void* base, const int64_t (&size)[kRank],
                     const int64_t (&stride)[kRank - 1], const int (&box)[kRank],
                     CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
  static const auto encode =
      driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (!encode) return kDriver + int32_t(CUDA_ERROR_NOT_FOUND);
  cuuint64_t sizes[kRank], bytes[kRank - 1];
  cuuint32_t boxes[kRank], ones[kRank];
  for (int i = 0; i < kRank; ++i) {
    sizes[i] = cuuint64_t(size[i]);
    boxes[i] = cuuint32_t(box[i]);
    ones[i] = 1;
    if (i > 0) bytes[i - 1] = cuuint64_t(stride[i - 1]) * sizeof(T);
  }
  return from_driver(encode(map, map_type<T>(), kRank, const_cast<void*>(base), sizes, bytes, boxes,
                            ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                            CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

// An NHWC view: sizes and strides (in elements) of c, w, h, n, the stride of c being 1.
struct PixelView {
  int64_t c, w, h, n;
  int64_t stride_w, stride_h, stride_n;
};

// Pixels of a view for im2col copies of `pixels` pixels x 64 channels. Along w the box of pixels is
// lower_w .. lower_w + extent_w - 1 in coordinates of the view, along h likewise.
template <class T>
int32_t encode_im2col(CUtensorMap* map, const void* base, const PixelView& view, int lower_w,
                      int lower_h, int extent_w, int extent_h, int pixels) {
  static const auto encode =
      driver_function<decltype(&cuTensorMapEncodeIm2col)>("cuTensorMapEncodeIm2col");
  if (!encode) return kDriver + int32_t(CUDA_ERROR_NOT_FOUND);
  cuuint64_t sizes[4] = {cuuint64_t(view.c), cuuint64_t(view.w), cuuint64_t(view.h),
                         cuuint64_t(view.n)};
  cuuint64_t bytes[3] = {cuuint64_t(view.stride_w) * sizeof(T),
                         cuuint64_t(view.stride_h) * sizeof(T),
                         cuuint64_t(view.stride_n) * sizeof(T)};
  // The upper corner counts from the last element: the box ends at size - 1 + upper.
  int lower[2] = {lower_w, lower_h};
  int upper[2] = {lower_w + extent_w - int(view.w), lower_h + extent_h - int(view.h)};
  cuuint32_t ones[4] = {1, 1, 1, 1};
  return from_driver(encode(map, map_type<T>(), 4, const_cast<void*>(base), sizes, bytes, lower,
                            upper, 64, cuuint32_t(pixels), ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                            CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
}

// Corners that an im2col map of rank 4 can hold.
inline bool corner_fits(int lower, int extent, int size) {
  int upper = lower + extent - size;
  return lower >= -128 && lower <= 127 && upper >= -128 && upper <= 127;
}

}  // namespace convoy::sm90
