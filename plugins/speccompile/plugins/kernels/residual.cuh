// The laws at a node of a tree, after the rejection of some of its children: `_Node` of
// spec_verify.py.
//
// No law is stored, and so there is no second copy of one to differ from the first: a law is made
// again from its logits and the few numbers of each rejection, which are what the sums of that
// rejection came to. A rejection is one pass over two rows; a draw is one over the row that it
// draws from, or over both behind a rejection, and one over a warp's part of it.
#pragma once
#include "law.cuh"

constexpr int NONE = -1;

/// What the rejection of a child did to the laws at its parent.
struct alignas(16) Rejection {
    float weight;       // of the target's law against the draft's
    float scale;        // of the residual; 0: there was none, and the law stayed
    float draft_scale;  // of the draft's law without `token`
    int token;
};

/// What the threads of a block share of the tree that they walk.
struct Tree {
    int first[MOST_NODES], next[MOST_NODES];  // child, sibling; given nodes have no others
    double weight[MOST_NODES];                // of the nodes on the path (`_Node`)
    Rejection rejections[MOST_NODES];         // of the rejected child of this index
};

/// The laws of one sequence's nodes; all its threads call the functions together but for those that
/// make probabilities (`masses`, `both`).
template <class T>
struct Laws {
    Tree &tree;
    const T *logits, *draft_logits;  // [N, V] of this sequence, as all that follows
    const Row *rows, *draft_rows;
    const int64 *tokens;
    int size;
    float temperature;

    /// A node without a valid row has no law; an `inner` one has children, drawn from the draft's.
    __device__ bool sound(int node, bool inner) const
    {
        return rows[node].best != INVALID && (!inner || draft_rows[node].best != INVALID);
    }

    /// Take out of the target's law what the draft's had a chance to propose, and out of the
    /// draft's its proposal.
    __device__ __noinline__ void reject(int node, int child) const
    {
        Rejection &rejection = tree.rejections[child];
        if (leader())
            rejection = {float(tree.weight[node]), 0.0f, 1.0f, int(tokens[child])};
        __syncthreads();
        const float weight = rejection.weight;
        const int token = rejection.token;
        uint64 left = 0, draft_left = 0;
        everywhere(node, [&](int from, auto &p, auto &q) {
            both(node, child, from, p, q);
            for (int i = 0; i < count(p); ++i) {
                left += mass(fmaxf(weight * p[i] - q[i], 0.0f));
                draft_left += from + i == token ? 0 : mass(q[i]);
            }
        });
        left = block_sum(left);
        draft_left = block_sum(draft_left);
        if (leader()) {
            double &share = tree.weight[node];
            if (left) {
                double rest = double(left) * 0x1p-52;
                rejection.scale = reciprocal(left, 0x1p52);
                share = rest / (rest + (1.0 - share));
            } else if (share < 1.0) {
                share = 0.0;
            }
            if (draft_left)
                rejection.draft_scale = reciprocal(draft_left, 0x1p52);
        }
        __syncthreads();
    }

    /// A token of the law at `node` after the rejections of its children before `end`.
    __device__ __noinline__ int draw(int node, int end, int64 uniform) const
    {
        if (temperature == 0.0f)
            return masses<1>(node, end, rows[node].best) ? rows[node].best : INVALID;
        const Packs<T> packs(logits + int64(node) * size, size);
        uint64 sum = 0;
        packs.each([&](int token) { sum += masses<Pack<T>::SIZE>(node, end, token); });
        const uint64 *sums = of_warps(from_lane(warp_prefix(sum), WARP - 1));
        __shared__ uint64 place;
        __shared__ int token;
        if (leader()) {
            uint64 total = 0;
            for (int other = 0; other < warps(); ++other)
                total += sums[other];
            double product = double(total) * (double(uniform) * 0x1p-53);
            // The product may round up to the total itself, where no token is.
            place = total ? min(uint64(product), total - 1) : 0;
            token = INVALID;
        }
        __syncthreads();
        auto beyond = [&](uint64 upto) { return upto > place; };
        auto of_warp = [&](int other) { return sums[other]; };
        auto of_pack = [&](int pack) {
            return masses<Pack<T>::SIZE>(node, end, packs.token(pack));
        };
        auto of_token = [&](int token) { return masses<1>(node, end, token); };
        Found run = first(0, warps(), 0, of_warp, beyond);
        if (warp() == run.index) {
            const int begin = packs.begin(warp()), after = packs.begin(warp() + 1);
            Found pack = first(begin, after, run.before, of_pack, beyond);
            const int from = packs.token(pack.index);
            Found found = first(from, from + Pack<T>::SIZE, pack.before, of_token, beyond);
            if (lane() == 0)
                token = found.index;
        }
        __syncthreads();
        return token;
    }

    /// Calls `visit` with the first of some tokens and room for their laws, until all that may have
    /// a probability were visited; those of temperature 0 are at most two.
    template <class Visit>
    __device__ void everywhere(int node, Visit visit) const
    {
        if (temperature == 0.0f) {
            float p[1], q[1];
            int best = rows[node].best, draft_best = draft_rows[node].best;
            if (leader())
                visit(best, p, q);
            if (leader() && draft_best != best)
                visit(draft_best, p, q);
            return;
        }
        Packs<T>(logits + int64(node) * size, size).each([&](int token) {
            float p[Pack<T>::SIZE], q[Pack<T>::SIZE];
            visit(token, p, q);
        });
    }

    /// The sum of `COUNT` masses of the target's law from `token` on.
    template <int COUNT>
    __device__ uint64 masses(int node, int end, int token) const
    {
        float p[COUNT], q[COUNT];
        if (tree.first[node] == end)
            law(logits, rows, node, token, p);
        else
            both(node, end, token, p, q);
        uint64 sum = 0;
        for (int i = 0; i < COUNT; ++i)
            sum += mass(p[i]);
        return sum;
    }

    /// Both laws at `node` from `token` on, after the rejections of its children before `end`.
    template <int COUNT>
    __device__ void both(int node, int end, int token, float (&p)[COUNT], float (&q)[COUNT]) const
    {
        law(logits, rows, node, token, p);
        law(draft_logits, draft_rows, node, token, q);
        for (int child = tree.first[node]; child != end; child = tree.next[child]) {
            const Rejection rejection = tree.rejections[child];
            for (int i = 0; i < COUNT; ++i) {
                float residual = fmaxf(rejection.weight * p[i] - q[i], 0.0f);
                p[i] = rejection.scale != 0.0f ? residual * rejection.scale : p[i];
                q[i] = token + i == rejection.token ? 0.0f : q[i] * rejection.draft_scale;
            }
        }
    }

    template <int COUNT>
    __device__ void law(const T *logits, const Row *rows, int node, int token,
                        float (&values)[COUNT]) const
    {
        const Row row = rows[node];
        read(logits + int64(node) * size, size, token, values);
        for (int i = 0; i < COUNT; ++i)
            values[i] = probability(values[i], token + i, row, temperature);
    }

    template <int COUNT>
    __device__ static constexpr int count(float (&)[COUNT])
    {
        return COUNT;
    }
};
