// What the kernels need of CUDA, for a C++20 compiler: the tests run these very sources on a host.
// A warp is one thread, a block one or several real ones, and blocks run one after the other.
#pragma once
#include <algorithm>
#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>
#include <thread>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(threads)
#define __noinline__

constexpr int WARP = 1;

struct dim3 {
    unsigned x, y, z;
};

struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline dim3 gridDim, blockDim, blockIdx;
inline thread_local dim3 threadIdx;
inline std::barrier<> *block_barrier;

inline void __syncthreads()
{
    if (block_barrier)
        block_barrier->arrive_and_wait();
}

inline void __syncwarp() {}
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline unsigned atomicAdd(unsigned *address, unsigned value)
{
    return std::atomic_ref(*address).fetch_add(value);
}

inline float __uint_as_float(unsigned bits) { return std::bit_cast<float>(bits); }
inline unsigned __float_as_uint(float value) { return std::bit_cast<unsigned>(value); }
inline int __ffs(int bits) { return bits ? std::countr_zero(unsigned(bits)) + 1 : 0; }
using std::fmax, std::fmin, std::max, std::min;

template <class Value>
Value from_lane(Value value, int)
{
    return value;
}

inline unsigned votes(bool vote) { return vote; }

/// As cuLaunchKernel: `arguments` are pointers to the kernel's arguments.
template <class... Arguments>
void launch(void (*kernel)(Arguments...), dim3 grid, unsigned threads, void **arguments)
{
    auto run = [&](unsigned thread) {
        threadIdx = {thread, 0, 0};
        [&]<std::size_t... I>(std::index_sequence<I...>) {
            kernel(*static_cast<Arguments *>(arguments[I])...);
        }(std::index_sequence_for<Arguments...>{});
    };
    gridDim = grid;
    blockDim = {threads, 1, 1};
    for (unsigned block = 0; block < grid.x * grid.y * grid.z; ++block) {
        blockIdx = {block % grid.x, block / grid.x % grid.y, block / grid.x / grid.y};
        if (threads == 1) {
            run(0);
            continue;
        }
        std::barrier<> barrier(threads);
        block_barrier = &barrier;
        std::vector<std::jthread> others;
        for (unsigned thread = 0; thread < threads; ++thread)
            others.emplace_back(run, thread);
        others.clear();
        block_barrier = nullptr;
    }
}
