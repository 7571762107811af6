// Forward convolution of int8 with sums in int32, on the integer tensor cores of sm80 and later:
// sm80_conv.cuh with other types. A sum is exact while C * R * S products of two int8 fit into int32;
// the bias is int32, and adding it wraps around. The result is int32, or int8 again.
#pragma once

#include "sm80_conv.cuh"

namespace convoy {

// accumulator + bias.
template <int kVector>
class Sm80OutputOp<EpilogueSpec<int32_t, Activation::kNone, false, false>, kVector> {
 public:
  using ElementOutput = int32_t;
  using ElementC = int32_t;
  using ElementVector = int32_t;
  using ElementZ = int32_t;
  using ElementT = int32_t;
  using ElementAccumulator = int32_t;
  using ElementCompute = int32_t;
  static int const kElementsPerAccess = kVector;
  static int const kCount = kVector;
  static bool const kIsSingleSource = true;
  static bool const kIsHeavy = false;
  static bool const kStoreZ = true;
  static bool const kStoreT = false;

  using Fragment = cutlass::Array<int32_t, kVector>;
  using FragmentAccumulator = Fragment;
  using FragmentCompute = Fragment;
  using FragmentC = Fragment;
  using FragmentOutput = Fragment;
  using FragmentZ = Fragment;
  using FragmentT = Fragment;

  struct Params {
    ClipBounds bounds;  // of float kernels
  };

  CUTLASS_HOST_DEVICE explicit Sm80OutputOp(Params const&) {}
  CUTLASS_HOST_DEVICE bool is_source_needed() const { return false; }
  CUTLASS_HOST_DEVICE void set_k_partition(int, int) {}

  CUTLASS_HOST_DEVICE void operator()(Fragment& z, Fragment& t, Fragment const& sum,
                                      Fragment const&, Fragment const& bias) const {
    operator()(z, t, sum, bias);
  }

  CUTLASS_HOST_DEVICE void operator()(Fragment& z, Fragment&, Fragment const& sum,
                                      Fragment const& bias) const {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kVector; ++i) z[i] = int32_t(uint32_t(sum[i]) + uint32_t(bias[i]));
  }
};

// A row of the operand `bias` of a result in int8.
struct alignas(16) Requantization {
  int32_t bias = 0;
  float scale = 0.f, shift = 0.f, factor = 0.f;

  Requantization() = default;
  CUTLASS_HOST_DEVICE explicit Requantization(int) : bias(0), scale(0.f), shift(0.f), factor(0.f) {}
};

// zero + clip(round(((accumulator + bias) * scale + shift) * factor)) with zero = 127 - upper bound;
// every operation is rounded, as where they are operators of a network, and halves go to even.
template <int kVector>
class Sm80OutputOp<EpilogueSpec<int8_t, Activation::kClip, false, false>, kVector> {
 public:
  using ElementOutput = int8_t;
  using ElementC = int8_t;
  using ElementVector = Requantization;
  using ElementZ = int8_t;
  using ElementT = int8_t;
  using ElementAccumulator = int32_t;
  using ElementCompute = Requantization;
  static int const kElementsPerAccess = kVector;
  static int const kCount = kVector;
  static bool const kIsSingleSource = true;
  static bool const kIsHeavy = true;
  static bool const kStoreZ = true;
  static bool const kStoreT = false;

  using FragmentAccumulator = cutlass::Array<int32_t, kVector>;
  using FragmentCompute = cutlass::Array<Requantization, kVector>;
  using FragmentC = cutlass::Array<int8_t, kVector>;
  using FragmentOutput = FragmentC;
  using FragmentZ = FragmentC;
  using FragmentT = FragmentC;

  struct Params {
    ClipBounds bounds;
  };

  CUTLASS_HOST_DEVICE explicit Sm80OutputOp(Params const& params) : bounds_(params.bounds) {}
  CUTLASS_HOST_DEVICE bool is_source_needed() const { return false; }
  CUTLASS_HOST_DEVICE void set_k_partition(int, int) {}

  CUTLASS_DEVICE void operator()(FragmentZ& z, FragmentT& t, FragmentAccumulator const& sum,
                                 FragmentC const&, FragmentCompute const& channels) const {
    operator()(z, t, sum, channels);
  }

  CUTLASS_DEVICE void operator()(FragmentZ& z, FragmentT&, FragmentAccumulator const& sum,
                                 FragmentCompute const& channels) const {
    CUTLASS_PRAGMA_UNROLL
    for (int i = 0; i < kVector; ++i) {
      Requantization const& channel = channels[i];
      float value = __int2float_rn(int32_t(uint32_t(sum[i]) + uint32_t(channel.bias)));
      value = __fadd_rn(__fmul_rn(value, channel.scale), channel.shift);
      value = rintf(__fmul_rn(value, channel.factor));
      value = fminf(fmaxf(value, bounds_.lower), bounds_.upper);
      z[i] = int8_t(int32_t(value + (127.f - bounds_.upper)));
    }
  }

 private:
  ClipBounds bounds_;
};

// As Sm80Config; kAlignA in elements of int8, kAlignOut in those of the result.
template <class Element_, class Spec_, int kTileM, int kTileN, int kTileK, int kWarpM, int kWarpN,
          int kStages, cutlass::conv::IteratorAlgorithm kIterator_, int kAlignA_, int kAlignOut_>
struct Sm80Int8Config {
  using Element = Element_;
  using Spec = Spec_;
  using Output = typename Spec::Element;
  static constexpr auto kIterator = kIterator_;
  static constexpr int kAlignA = kAlignA_, kAlignOut = kAlignOut_;
  static constexpr bool kSplitK = false;

  using Tile = cutlass::gemm::GemmShape<kTileM, kTileN, kTileK>;
  using Warp = cutlass::gemm::GemmShape<kWarpM, kWarpN, kTileK>;
  using Layout = cutlass::layout::TensorNHWC;

  template <class Op>
  using Fused = typename cutlass::conv::kernel::DefaultConv2dFpropWithBroadcast<
      Element, Layout, Element, Layout, Output, Layout, int32_t, cutlass::arch::OpClassTensorOp,
      cutlass::arch::Sm80, Tile, Warp, cutlass::gemm::GemmShape<16, 8, 32>, Op,
      cutlass::gemm::threadblock::GemmIdentityThreadblockSwizzle<4>, kStages,
      cutlass::arch::OpMultiplyAddSaturate, kIterator, cutlass::conv::StrideSupport::kStrided,
      kAlignA, kAlignA>::Kernel;
};

// Longer sums may not fit into int32: of 2^17 products -128 * -128.
constexpr int64_t kMostInt8Products = (1 << 17) - 1;

template <class Config>
struct Sm80Int8Conv : Sm80Conv<Config> {
  static int32_t check(ConvoyShape const& s) {
    if (int64_t(s.c) * s.r * s.s > kMostInt8Products) return kTooLarge;
    return Sm80Conv<Config>::check(s);
  }

  static int32_t prepare(ConvoyShape const& s, ConvoyOperands const& o,
                         typename Sm80Conv<Config>::State* state) {
    bool requantizes = sizeof(typename Config::Output) == 1;
    if (requantizes && !o.bias) return kMissingOperand;
    return Sm80Conv<Config>::prepare(s, o, state);
  }
};

}  // namespace convoy
