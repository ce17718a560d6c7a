// Positions and masks of a tree's nodes (tree.py), one block a node.
//
// Moves: 2 B N S bytes of masks out, 16 at a time, and 8 B N^2 of parents in, from the L2 but for
// 8 B N. Bound: 2 B N S / bandwidth.
#include "block.cuh"
#include "schema.cuh"

constexpr int PIECE = 16;

/// The slots that one node sees; those of the tree as bits, by node.
struct View {
    unsigned seen[MOST_NODES / 32];
    int committed, after;  // slots below the one, and above the other, if they are committed

    __device__ bool sees(int slot, int nodes) const
    {
        int node = slot - committed;
        return node < 0 ? slot > after : node < nodes && seen[node / 32] >> node % 32 & 1;
    }
};

__device__ inline void write(const View &view, unsigned char *mask, int nodes, int capacity)
{
    int head = -reinterpret_cast<uint64>(mask) % PIECE;  // slots before the first whole piece
    for (int slot = head - PIECE + int(threadIdx.x) * PIECE; slot < capacity;
         slot += int(blockDim.x) * PIECE) {
        alignas(PIECE) unsigned char piece[PIECE];
        for (int i = 0; i < PIECE; ++i)
            piece[i] = view.sees(slot + i, nodes);
        if (slot >= 0 && slot + PIECE <= capacity)
            *reinterpret_cast<uint4 *>(mask + slot) = *reinterpret_cast<const uint4 *>(piece);
        else
            for (int i = 0; i < PIECE; ++i)
                if (slot + i >= 0 && slot + i < capacity)
                    mask[slot + i] = piece[i];
    }
}

/// Grid: nodes, sequences. A window of 0 is none.
extern "C" __global__ void tree_mask(const int64 *parents, const int64 *lengths,
                                     int64 *position_ids, unsigned char *attention_mask,
                                     unsigned char *sliding_mask, int nodes, int capacity,
                                     int window)
{
    __shared__ int up[MOST_NODES];
    __shared__ View all, near;
    const int64 index = int64(blockIdx.y) * nodes + blockIdx.x;
    for (int node = threadIdx.x; node < nodes; node += blockDim.x) {
        const int64 parent = parents[int64(blockIdx.y) * nodes + node];
        up[node] = parent < node ? int(max(parent, int64(-1))) : -1;  // made-up inputs have cycles
    }
    for (int word = threadIdx.x; word < MOST_NODES / 32; word += blockDim.x)
        all.seen[word] = near.seen[word] = 0;
    __syncthreads();
    if (leader()) {
        const int length = int(lengths[blockIdx.y]);
        int depth = 0;
        for (int node = blockIdx.x;; node = up[node], ++depth) {
            all.seen[node / 32] |= 1u << node % 32;
            if (!window || depth < window)
                near.seen[node / 32] |= 1u << node % 32;
            if (up[node] < 0)
                break;
        }
        position_ids[index] = length + depth;
        all.committed = near.committed = length;
        all.after = -1;
        near.after = window ? length + depth - window : -1;
    }
    __syncthreads();
    write(all, attention_mask + index * capacity, nodes, capacity);
    if (sliding_mask)
        write(near, sliding_mask + index * capacity, nodes, capacity);
}
