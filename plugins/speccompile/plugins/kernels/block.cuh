// The threads of a block at work on one thing: whole sums, maxima and searches, whose order does
// not matter. Written for any number of threads; on a host (host.h) a "warp" is one of them.
#pragma once

#ifdef __CUDACC__
constexpr int WARP = 32;

template <class Value>
__device__ Value from_lane(Value value, int lane)
{
    return __shfl_sync(~0u, value, lane);
}

__device__ inline unsigned votes(bool vote)
{
    return __ballot_sync(~0u, vote);
}
#else
#include "host.h"
#endif

using int64 = long long;
using uint64 = unsigned long long;

constexpr int MOST_WARPS = 32;

__device__ inline int lane() { return threadIdx.x % WARP; }
__device__ inline int warp() { return threadIdx.x / WARP; }
__device__ inline int warps() { return blockDim.x / WARP; }
__device__ inline bool leader() { return threadIdx.x == 0; }

/// What one thread finds out for all.
template <class Act>
__device__ auto once(Act act)
{
    __shared__ decltype(act()) shared;
    if (leader())
        shared = act();
    __syncthreads();
    auto result = shared;
    __syncthreads();
    return result;
}

/// One value of every warp, in their order, for all to read until the next call; synchronize first.
__device__ inline const uint64 *of_warps(uint64 value)
{
    __shared__ uint64 values[MOST_WARPS];
    if (lane() == 0)
        values[warp()] = value;
    __syncthreads();
    return values;
}

/// All threads' values joined, for all of them; `join` does not mind the order.
template <class Join>
__device__ uint64 block_join(uint64 value, Join join)
{
    for (int distance = WARP / 2; distance; distance /= 2)
        value = join(value, from_lane(value, lane() ^ distance));
    const uint64 *values = of_warps(value);
    uint64 all = values[0];
    for (int other = 1; other < warps(); ++other)
        all = join(all, values[other]);
    __syncthreads();
    return all;
}

__device__ inline uint64 block_sum(uint64 value)
{
    return block_join(value, [](uint64 one, uint64 other) { return one + other; });
}

__device__ inline uint64 block_max(uint64 value)
{
    return block_join(value, [](uint64 one, uint64 other) { return one > other ? one : other; });
}

/// The sum over this lane and the lower ones.
__device__ inline uint64 warp_prefix(uint64 value)
{
    for (int distance = 1; distance < WARP; distance *= 2) {
        uint64 below = from_lane(value, lane() - distance);
        value += lane() >= distance ? below : 0;
    }
    return value;
}

struct Found {
    int index;
    uint64 before;  // the sum ahead of it
};

/// The first index at which `before` plus the values from `begin` up to and with its own has
/// `reached` its goal. By one warp; `end` if there is none.
template <class Value, class Reached>
__device__ Found first(int begin, int end, uint64 before, Value value, Reached reached)
{
    for (int base = begin; base < end; base += WARP) {
        uint64 own = base + lane() < end ? value(base + lane()) : 0;
        uint64 upto = before + warp_prefix(own);
        if (unsigned hits = votes(reached(upto))) {
            int hit = __ffs(hits) - 1;
            return {base + hit, from_lane(upto - own, hit)};
        }
        before = from_lane(upto, WARP - 1);
    }
    return {end, before};
}
