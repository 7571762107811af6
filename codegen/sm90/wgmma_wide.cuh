// wgmma of wgmma_rows.cuh for 192 and 256 columns.
#pragma once

#include "wgmma_rows.cuh"

namespace convoy::sm90 {

#define CONVOY_LIST_64_96                                        \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, " \
  "%76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, %87, " \
  "%88, %89, %90, %91, %92, %93, %94, %95"
#define CONVOY_LIST_96 CONVOY_LIST_64 ", " CONVOY_LIST_64_96
#define CONVOY_D96(i) CONVOY_D64(i), CONVOY_D32(i + 64)

#define CONVOY_MMA_WIDE_OF(T, PTX)             \
  CONVOY_MMA_ROWS(T, PTX, 192, 96, 96, 97, 98) \
  CONVOY_MMA_ROWS(T, PTX, 256, 128, 128, 129, 130)

CONVOY_MMA_WIDE_OF(__half, "f16")
CONVOY_MMA_WIDE_OF(__nv_bfloat16, "bf16")

}  // namespace convoy::sm90
