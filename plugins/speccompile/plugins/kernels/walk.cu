// Which path of a tree stands, and the token behind it: spec_verify.py, one block a sequence.
//
// Moves: V s bytes to draw, 2 V s for each rejection and for a draw behind any, out of the L2,
// where rows.cu left them. Bound: that over what one multiprocessor reads, or some 40 instructions
// for each probability. At temperature 0 it moves nothing that grows with V.
#include "residual.cuh"

struct Verdict {
    int node, length, token;  // the last node of the path, its nodes, the token behind it
};

template <class T>
struct Walk {
    Tree &tree;
    const Laws<T> laws;
    const int64 *parents, *uniforms;
    int given, nodes;

    /// Sorts the nodes by their parents; children stand in the order in which they were drawn.
    __device__ void lay_out() const
    {
        for (int node = threadIdx.x; node < nodes; node += blockDim.x) {
            tree.first[node] = NONE;
            const int64 parent = parents[node];  // a builder times kernels on made-up inputs
            const bool placed = node >= given && parent >= 0 && parent < node;
            tree.next[node] = placed ? int(parent) : NONE;
        }
        __syncthreads();
        if (leader()) {
            tree.weight[given - 1] = 1.0;
            for (int node = nodes - 1; node >= given; --node) {
                int parent = tree.next[node];
                if (parent >= 0) {
                    tree.next[node] = tree.first[parent];
                    tree.first[parent] = node;
                }
            }
        }
        __syncthreads();
    }

    /// Follow the target's own choice for as long as the tree has it.
    __device__ Verdict walk() const
    {
        Verdict path{given - 1, given, INVALID};
        while (laws.sound(path.node, false)) {
            path.token = draw(path.node, tree.first[path.node]);
            int child = tree.first[path.node];
            while (child != NONE && laws.tokens[child] != path.token)
                child = tree.next[child];
            if (child == NONE || path.token == INVALID)
                return path;
            path = {child, path.length + 1, INVALID};
        }
        return path;
    }

    /// From the root down: the first accepted child is followed.
    __device__ Verdict token() const
    {
        Verdict path{given - 1, given, INVALID};
        while (laws.sound(path.node, tree.first[path.node] != NONE)) {
            int child = tree.first[path.node];
            while (child != NONE && !chosen(path.node, child)) {
                laws.reject(path.node, child);
                child = tree.next[child];
            }
            if (child == NONE)
                return {path.node, path.length, draw(path.node, NONE)};
            if (leader())
                tree.weight[child] = 1.0;
            path = {child, path.length + 1, INVALID};
        }
        return path;
    }

    /// From the first leaf up: a path stands as a whole, or its leaf is taken away.
    __device__ Verdict traversal() const
    {
        const int root = given - 1;
        int node = root, length = given;
        while (laws.sound(node, tree.first[node] != NONE)) {
            int child = tree.first[node];
            while (child == NONE) {
                if (node == root || stands(node))
                    return {node, length, draw(node, NONE)};
                int leaf = node;
                node = int(parents[leaf]);
                --length;
                laws.reject(node, leaf);
                child = tree.next[leaf];
            }
            weigh(node, child);
            node = child;
            ++length;
        }
        return {root, given, INVALID};
    }

    __device__ int draw(int node, int end) const
    {
        return laws.draw(node, end, uniforms ? uniforms[2 * node + 1] : 0);
    }

    /// With probability min(1, p / q).
    __device__ bool accepts(int node, double p, double q) const
    {
        return double(uniforms[2 * node]) * 0x1p-53 * q < p;
    }

    __device__ bool chosen(int node, int child) const
    {
        return once([&] {
            float p[1], q[1];
            laws.both(node, child, int(laws.tokens[child]), p, q);
            return accepts(child, p[0], q[0]);
        });
    }

    __device__ bool stands(int node) const
    {
        return once([&] { return accepts(node, tree.weight[node], 1.0); });
    }

    /// The ratio of both laws along the path to `child`, at most 1.
    __device__ void weigh(int node, int child) const
    {
        if (leader()) {
            float here[1], there[1];
            laws.both(node, child, int(laws.tokens[child]), here, there);
            double p = tree.weight[node] * here[0], q = there[0];
            tree.weight[child] = q != 0.0 ? fmin(1.0, p / q) : double(p > 0.0);
        }
        __syncthreads();
    }
};

/// Grid: sequences. What a rule has no use for is null; `sampling` null is temperature 0.
template <class T>
__device__ void walk(const T *logits, const T *draft_logits, const int64 *tokens,
                     const int64 *parents, const int64 *given, const int64 *uniforms,
                     const float *sampling, const Row *rows, int64 *path, int64 *count,
                     int64 *next_token, int64 *emitted, int nodes, int size, Rule rule)
{
    __shared__ Tree tree;
    const int sequence = blockIdx.x;
    const int committed = int(max(int64(1), min(given[sequence], int64(nodes))));
    const int64 start = int64(sequence) * nodes;
    tokens += start, parents += start, rows += start, path += start, emitted += start;
    const Row *draft_rows = rows + int64(gridDim.x) * nodes;
    const float temperature = sampling ? sampling[4 * sequence] : 0.0f;
    logits += start * size;
    draft_logits = draft_logits ? draft_logits + start * size : nullptr;
    uniforms = uniforms ? uniforms + 2 * start : nullptr;
    const Laws<T> laws{tree, logits, draft_logits, rows, draft_rows, tokens, size, temperature};
    const Walk<T> here{tree, laws, parents, uniforms, committed, nodes};
    here.lay_out();
    const Verdict verdict = rule == TRAVERSAL ? here.traversal()
                            : rule == TOKEN   ? here.token()
                                              : here.walk();
    for (int i = threadIdx.x; i < nodes; i += blockDim.x)
        path[i] = i < committed ? i : INVALID;
    __syncthreads();
    if (leader()) {
        for (int i = verdict.length - 1, node = verdict.node; i >= committed; --i) {
            path[i] = node;
            node = int(parents[node]);
        }
        count[sequence] = verdict.length;
        next_token[sequence] = verdict.token;
    }
    __syncthreads();
    const int accepted = verdict.length - committed;
    for (int i = threadIdx.x; i < nodes; i += blockDim.x)
        emitted[i] = i < accepted    ? tokens[path[committed + i]]
                     : i == accepted ? verdict.token
                                     : INVALID;
}

#define WALK(T, NAME)                                                                              \
    extern "C" __global__ void __launch_bounds__(1024)                                             \
        NAME(const T *logits, const T *draft_logits, const int64 *tokens, const int64 *parents,    \
             const int64 *given, const int64 *uniforms, const float *sampling, const Row *records, \
             int64 *path, int64 *count, int64 *next_token, int64 *emitted, int nodes,              \
             int vocabulary, int rule)                                                             \
    {                                                                                              \
        walk(logits, draft_logits, tokens, parents, given, uniforms, sampling, records, path,      \
             count, next_token, emitted, nodes, vocabulary, Rule(rule));                           \
    }

WALK(float, walk_float32)
WALK(float16, walk_float16)
WALK(bfloat16, walk_bfloat16)
