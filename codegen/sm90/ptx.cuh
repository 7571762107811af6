// The sm_90a instructions that the kernels of this folder are written in.
#pragma once

#include "mbarrier.cuh"
#include "tma.cuh"
#include "warpgroup.cuh"
#include "wgmma.cuh"
