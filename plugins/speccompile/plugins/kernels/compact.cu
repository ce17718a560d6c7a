// Moves the rows of a path to the front of a tree's rows (tree.py), in all caches at once.
//
// A thread owns 16 bytes of every row of a head. It goes up the path, on which node i is never
// before place i: what it writes over, it has read or nobody asks for. So it is done in place, and
// no thread waits for another.
//
// Moves: 2 W bytes for every row of W bytes that is not in its place already: none on a chain.
// Bound: 2 W L H B m / bandwidth for m such rows in L caches of H heads.
#include "block.cuh"

/// Grid: pieces of 16 bytes of the heads' rows, sequences, caches [B, H, S, width].
extern "C" __global__ void compact_rows(uint4 *const *caches, const int64 *path,
                                        const int64 *count, const int64 *lengths, int nodes,
                                        int heads, int capacity, int width)
{
    const int sequence = blockIdx.y;
    path += int64(sequence) * nodes;
    for (int piece = blockIdx.x * blockDim.x + threadIdx.x; piece < heads * width;
         piece += gridDim.x * blockDim.x) {
        const int64 head = int64(sequence) * heads + piece / width;
        uint4 *rows = caches[blockIdx.z] + (head * capacity + lengths[sequence]) * width;
        for (int i = 0; i < count[sequence]; ++i)
            if (path[i] != i)
                rows[int64(i) * width + piece % width] = rows[path[i] * width + piece % width];
    }
}
