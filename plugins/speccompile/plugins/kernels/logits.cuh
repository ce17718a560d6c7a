// Rows of logits, read 16 bytes at a time wherever a row begins.
#pragma once
#include "block.cuh"

struct float16 {
    unsigned short bits;
};

struct bfloat16 {
    unsigned short bits;
};

__device__ inline float decode(float value) { return value; }

__device__ inline float decode(bfloat16 value)
{
    return __uint_as_float(unsigned(value.bits) << 16);
}

__device__ inline float decode(float16 value)
{
#ifdef __CUDACC__
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
#else
    unsigned sign = unsigned(value.bits & 0x8000) << 16, rest = unsigned(value.bits & 0x7fff) << 13;
    // A number of another bias, subnormal ones too; infinities and NaNs have all exponent bits.
    float size = rest < 0x0f800000 ? __uint_as_float(rest) * 0x1p112f
                                   : __uint_as_float(rest | 0x7f800000);
    return __uint_as_float(sign | __float_as_uint(size));
#endif
}

/// As many values as 16 bytes hold.
template <class T>
struct alignas(16) Pack {
    static constexpr int SIZE = 16 / sizeof(T);
    T values[SIZE];
};

/// `COUNT` logits from `token` on; what lies outside the row [size] is minus infinity.
template <int COUNT, class T>
__device__ void read(const T *row, int size, int token, float (&logits)[COUNT])
{
    const T *from = row + token;
    bool inside = token >= 0 && token + COUNT <= size;
    if (inside && COUNT == Pack<T>::SIZE && reinterpret_cast<uint64>(from) % 16 == 0) {
        Pack<T> pack = *reinterpret_cast<const Pack<T> *>(from);
        for (int i = 0; i < COUNT; ++i)
            logits[i] = decode(pack.values[i % Pack<T>::SIZE]);
        return;
    }
    for (int i = 0; i < COUNT; ++i)
        logits[i] = 0 <= token + i && token + i < size ? decode(from[i])
                                                       : __uint_as_float(0xff800000);
}

/// The packs of a row [size]: they begin at multiples of 16 bytes, so that the first and the last
/// may reach out of it. Every warp has a run of them, its lanes one after the other.
template <class T>
struct Packs {
    int skew, count;

    __device__ Packs(const T *row, int size)
        : skew(reinterpret_cast<uint64>(row) / sizeof(T) % Pack<T>::SIZE),
          count((skew + size + Pack<T>::SIZE - 1) / Pack<T>::SIZE)
    {
    }

    __device__ int begin(int warp) const { return int64(count) * warp / warps(); }
    __device__ int token(int pack) const { return pack * Pack<T>::SIZE - skew; }

    /// Calls `visit` with the first token of each of this thread's packs.
    template <class Visit>
    __device__ void each(Visit visit) const
    {
        const int end = begin(warp() + 1);
        for (int pack = begin(warp()) + lane(); pack < end; pack += WARP)
            visit(token(pack));
    }
};
