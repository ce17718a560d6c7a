// Philox4x32-10 as philox.py has it: a number is a function of what it is for, not of a moment.
#pragma once
#include "block.cuh"

struct Words {
    unsigned a, b, c, d;
};

__device__ inline Words philox(Words counter, unsigned left, unsigned right)
{
    auto [a, b, c, d] = counter;
    for (int round = 0; round < 10; ++round) {
        uint64 first = uint64(a) * 0xD2511F53u, second = uint64(c) * 0xCD9E8D57u;
        a = unsigned(second >> 32) ^ b ^ left;
        b = unsigned(second);
        c = unsigned(first >> 32) ^ d ^ right;
        d = unsigned(first);
        left += 0x9E3779B9u;
        right += 0xBB67AE85u;
    }
    return {a, b, c, d};
}

enum Purpose { DRAFT, ACCEPT, EMIT };

/// A whole number below 2^53. `seed` is a seed and a request. A token's own number (EMIT) belongs to
/// its position; what a round draws besides belongs to the position of its root and to a node, the
/// branch: no later round has the same root, and none may see such a number again.
__device__ inline int64 uniform(const int64 *seed, int64 position, Purpose purpose, int branch = 0)
{
    uint64 key = seed[0];
    Words counter{unsigned(position), unsigned(position >> 32) | unsigned(purpose) << 24,
                  unsigned(seed[1]), unsigned(branch)};
    Words words = philox(counter, unsigned(key), unsigned(key >> 32));
    return int64(words.a >> 5) << 26 | words.b >> 6;
}
