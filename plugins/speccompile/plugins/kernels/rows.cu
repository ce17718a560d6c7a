// What has to be known of every row that a walk may look at (`Row`): one block for each.
//
// Moves: r V s bytes for r rows of V logits of s bytes, read once from memory. Temperature 0 reads
// a row once and no more; else once more for the sum, 3 times for top-k and 4 for top-p, all of it
// from the L2. Bound: r V s / bandwidth as long as r is near the number of multiprocessors; a row
// alone is bound by what one of these reads, and by some 40 instructions for each weight.
#include "law.cuh"

constexpr int DIGIT = 10;
constexpr int BINS = 1 << DIGIT;

/// Maps logits to numbers of the same order, -0 to that of 0, and NaNs above all.
__device__ inline unsigned ordered(float logit)
{
    unsigned bits = __float_as_uint(logit + 0.0f);
    return logit != logit ? ~0u : bits >> 31 ? ~bits : bits | 0x80000000;
}

__device__ inline float from_ordered(unsigned order)
{
    return __uint_as_float(order >> 31 ? order & 0x7fffffff : ~order);
}

/// Adds to a sum of 64 bits in two halves, for which there are atomics in shared memory.
__device__ inline void add(unsigned *low, unsigned *high, uint64 amount)
{
    unsigned before = atomicAdd(low, unsigned(amount));
    unsigned carry = before + unsigned(amount) < before;
    if (unsigned upper = unsigned(amount >> 32) + carry)
        atomicAdd(high, upper);
}

template <class T>
struct RowReader {
    const T *row;
    int size;
    float top, temperature;

    template <class Visit>
    __device__ void each_logit(Visit visit) const
    {
        Packs<T>(row, size).each([&](int token) {
            float logits[Pack<T>::SIZE];
            read(row, size, token, logits);
            for (int i = 0; i < Pack<T>::SIZE; ++i)
                visit(logits[i], token + i);
        });
    }

    template <class Visit>
    __device__ void each_weight(Visit visit) const
    {
        each_logit([&](float logit, int) { visit(weight(logit, top, temperature)); });
    }

    /// The sum of the weights from `least` on.
    __device__ uint64 total(float least) const
    {
        uint64 sum = 0;
        each_weight([&](float weight) { sum += weight < least ? 0 : whole(weight, WEIGHT_BITS); });
        return block_sum(sum);
    }

    /// From the largest weight down, the one whose `amount`, summed with those above, is `enough`:
    /// by digits of its bits, of which no weight, being at most 1, has more than 30.
    template <class Amount>
    __device__ float select(Amount amount, double enough) const
    {
        __shared__ unsigned low[BINS], high[BINS];
        __shared__ Found found;
        unsigned prefix = 0;
        uint64 above = 0;
        for (int shift = 2 * DIGIT; shift >= 0; shift -= DIGIT) {
            for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
                low[bin] = high[bin] = 0;
            __syncthreads();
            each_weight([&](float weight) {
                unsigned digits = __float_as_uint(weight) >> shift, bin = digits % BINS;
                if (uint64 own = digits / BINS == prefix ? amount(weight) : 0)
                    add(low + bin, high + bin, own);
            });
            __syncthreads();
            if (warp() == 0) {
                auto bin = [&](int index) {
                    return uint64(high[BINS - 1 - index]) << 32 | low[BINS - 1 - index];
                };
                auto is_enough = [&](uint64 sum) { return double(sum) >= enough; };
                Found here = first(0, BINS, above, bin, is_enough);
                if (leader())
                    found = here;
            }
            __syncthreads();
            prefix = prefix * BINS + (BINS - 1 - found.index);
            above = found.before;
        }
        return __uint_as_float(prefix);
    }

    /// The least weight that top-k, top-p and min-p keep; none below a unit is.
    __device__ float least(int top_k, float top_p, float min_p) const
    {
        const float units = 0x1p44f;
        float cut = 1.0f;
        if (0 < top_k && top_k < size)
            cut = fmaxf(cut, truncf(select([](float) { return 1ull; }, top_k) * units));
        if (top_p < 1.0f) {
            float kept = cut / units;
            auto amount = [=](float weight) {
                return weight < kept ? 0ull : whole(weight, WEIGHT_BITS);
            };
            // The largest weight is always kept.
            double enough = fmax(double(top_p) * double(total(kept)), 0.5);
            cut = fmaxf(cut, truncf(select(amount, enough) * units));
        }
        return fmaxf(cut, ceilf(min_p * units)) / units;
    }
};

/// Rows that no walk comes to: padding, all given nodes but the last, the draft's behind leaves.
__device__ inline bool skipped(const int64 *parents, int node, int given, int nodes, bool draft)
{
    if (node < given - 1 || (node >= given && parents[node] < 0))
        return true;
    uint64 children = 0;
    for (int child = given + threadIdx.x; draft && child < nodes; child += blockDim.x)
        children += parents[child] == node;
    return draft && block_sum(children) == 0;
}

/// Grid: nodes, sequences, and the target or the draft. `records` [2, B, N].
template <class T>
__device__ void rows(const T *logits, const T *draft_logits, const int64 *parents,
                     const int64 *given, const float *sampling, Row *records, int nodes, int size)
{
    int node = blockIdx.x, sequence = blockIdx.y;
    bool draft = blockIdx.z;
    if (skipped(parents + sequence * nodes, node, int(given[sequence]), nodes, draft))
        return;
    int64 index = int64(sequence) * nodes + node;
    RowReader<T> reader{(draft ? draft_logits : logits) + index * size, size, 0.0f, 0.0f};
    uint64 key = 0;
    reader.each_logit([&](float logit, int token) {
        uint64 own = uint64(ordered(logit)) << 32 | ~unsigned(token);
        key = own > key ? own : key;
    });
    key = block_max(key);
    reader.top = from_ordered(unsigned(key >> 32));
    Row row{reader.top, 0.0f, 0.0f, int(~unsigned(key))};
    bool finite = (__float_as_uint(row.top) & 0x7f800000) != 0x7f800000;
    if (!finite)
        row.best = INVALID;
    const float *wish = sampling + 4 * sequence;
    if (finite && sampling && wish[0] != 0.0f) {
        reader.temperature = wish[0];
        row.least = reader.least(int(wish[1]), wish[2], wish[3]);
        row.scale = reciprocal(reader.total(row.least), 0x1p44);
    }
    if (leader())
        records[(draft ? int64(gridDim.y) * nodes : 0) + index] = row;
}

#define ROWS(T, NAME)                                                                              \
    extern "C" __global__ void __launch_bounds__(1024)                                             \
        NAME(const T *logits, const T *draft_logits, const int64 *parents, const int64 *given,     \
             const float *sampling, Row *records, int nodes, int vocabulary)                       \
    {                                                                                              \
        rows(logits, draft_logits, parents, given, sampling, records, nodes, vocabulary);          \
    }

ROWS(float, rows_float32)
ROWS(float16, rows_float16)
ROWS(bfloat16, rows_bfloat16)
