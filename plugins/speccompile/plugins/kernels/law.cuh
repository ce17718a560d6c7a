// From a logit to a probability: laws.py, operation by operation. What is done to a token is done
// in fp32, every operation rounded (--fmad=false); what is summed is summed in whole numbers.
#pragma once
#include "logits.cuh"
#include "schema.cuh"

constexpr int WEIGHT_BITS = 44;  // a weight counts in units of 2^-44
constexpr int MASS_BITS = 52;    // a probability in units of 2^-52

/// What has to be known of a row, beside its logits, for the probability of any token.
struct alignas(16) Row {
    float top;    // the largest logit
    float least;  // the least weight that the filters keep: a multiple of 2^-44
    float scale;  // one over the sum of the kept weights
    int best;     // the token of the largest logit; INVALID where the row is
};

/// e to the power of a value that is at most 0; below -40 it is 0.
__device__ inline float exponential(float value)
{
    float inside = value < -40.0f ? -40.0f : value;
    float power = rintf(inside * 1.44269504f);
    float rest = (inside - power * 0.693359375f) - power * -2.12194440e-4f;
    float result = float(1.0 / 720);
    result = result * rest + float(1.0 / 120);
    result = result * rest + float(1.0 / 24);
    result = result * rest + float(1.0 / 6);
    result = result * rest + 0.5f;
    result = result * rest + 1.0f;
    result = result * rest + 1.0f;
    result *= __uint_as_float(unsigned(127 + int(power)) << 23);
    return value < -40.0f ? 0.0f : result;
}

__device__ inline float weight(float logit, float top, float temperature)
{
    return exponential((logit - top) / temperature);
}

/// The law's probability of `token`; at temperature 0 the best one is certain.
__device__ inline float probability(float logit, int token, const Row &row, float temperature)
{
    if (temperature == 0.0f)
        return token == row.best ? 1.0f : 0.0f;
    float kept = weight(logit, row.top, temperature);
    return kept < row.least ? 0.0f : kept * row.scale;
}

/// A value of at most 1 in units of 2^-bits, rounded down. Conversions to 64 bits run at a small
/// part of the rate of shifts.
__device__ inline uint64 whole(float value, int bits)
{
    unsigned raw = __float_as_uint(value), mantissa = (raw & 0x7fffff) | 0x800000;
    int shift = int(raw >> 23) - 150 + bits;
    return shift >= 0 ? uint64(mantissa) << shift : mantissa >> (shift < -31 ? 31 : -shift);
}

__device__ inline uint64 mass(float probability) { return whole(probability, MASS_BITS); }

/// 1 over a sum of such units.
__device__ inline float reciprocal(uint64 total, double one) { return float(one / double(total)); }
