// What stands between the engines of a round, so that a round needs no host (launches.py).
//
// Moves: a few words for every node; keep_logits a row of logits, in and out. Bound: the launches.
#include "philox.cuh"
#include "schema.cuh"

/// Grid: sequences. Takes over what the draft chose, prepares its next step or the target's
/// numbers; for what is not done, the address is null. A chain: node n has the depth n.
extern "C" __global__ void __launch_bounds__(1024)
    draft_step(int64 *tokens, const int64 *lengths, const int64 *seeds,
               const int64 *draft_next_token, const int64 *previous, int64 *draft_input,
               int64 *draft_lengths, int64 *draft_uniforms, int64 *uniforms, int nodes, int step)
{
    const int sequence = blockIdx.x;
    const int64 length = lengths[sequence];
    const int64 *seed = seeds + 2 * sequence;
    tokens += int64(sequence) * nodes;
    if (leader() && draft_next_token)
        tokens[step] = draft_next_token[sequence];
    if (leader() && draft_input) {
        const int rows = previous ? 2 : 1;
        if (previous)
            draft_input[rows * sequence] = previous[sequence];
        const int last = rows * sequence + rows - 1;
        draft_input[last] = tokens[step];
        draft_lengths[sequence] = length + step - (rows - 1);
        draft_uniforms[2 * last + 1] = uniform(seed, length, DRAFT, step + 1);
    }
    for (int node = threadIdx.x; uniforms && node < nodes; node += blockDim.x) {
        int64 *pair = uniforms + 2 * (int64(sequence) * nodes + node);
        pair[0] = uniform(seed, length, ACCEPT, node);
        pair[1] = uniform(seed, length + node + 1, EMIT);
    }
}

/// Grid: parts of a row, sequences. Rows of `width` bytes, an even number.
extern "C" __global__ void keep_logits(const char *logits, char *draft_logits, int step, int rows,
                                       int nodes, int width)
{
    const char *from = logits + (int64(blockIdx.y) * rows + rows - 1) * width;
    char *to = draft_logits + (int64(blockIdx.y) * nodes + step) * width;
    const int aligned = (reinterpret_cast<uint64>(from) | reinterpret_cast<uint64>(to)) % 16 == 0;
    const int thread = blockIdx.x * blockDim.x + threadIdx.x, threads = gridDim.x * blockDim.x;
    const int pieces = aligned ? width / 16 : 0;
    for (int i = thread; i < pieces; i += threads)
        reinterpret_cast<uint4 *>(to)[i] = reinterpret_cast<const uint4 *>(from)[i];
    for (int i = pieces * 8 + thread; i < width / 2; i += threads)
        reinterpret_cast<short *>(to)[i] = reinterpret_cast<const short *>(from)[i];
}

/// One block, a warp for each sequence.
extern "C" __global__ void commit(const int64 *path, const int64 *count, const int64 *next_token,
                                  const int64 *emitted, const int64 *stopped, int64 *tokens,
                                  int64 *lengths, int64 *previous, int64 *round, int64 *ring,
                                  int batch, int nodes, int slots)
{
    const int64 now = *round;
    for (int sequence = warp(); sequence < batch; sequence += warps()) {
        const int64 start = int64(sequence) * nodes;
        const int64 next = next_token[sequence];
        const int64 added = next == INVALID || stopped[sequence] ? 0 : count[sequence];
        int64 *record = ring + (int64(sequence) * slots + now % slots) * (nodes + 2);
        for (int i = lane(); i < nodes; i += WARP)
            record[2 + i] = added ? emitted[start + i] : INVALID;
        if (lane() == 0) {
            record[1] = added;
            if (added) {
                lengths[sequence] += added;
                previous[sequence] = tokens[start + path[start + added - 1]];
                tokens[start] = next;
            }
        }
        __syncwarp();
        if (lane() == 0) {
            __threadfence_system();
            *static_cast<volatile int64 *>(record) = now + 1;
        }
    }
    __syncthreads();
    if (leader())
        *round = now + 1;
}
