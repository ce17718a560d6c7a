// Rows of queries over the keys and values of a cache.
//
// Whatever a row sees comes in the order of its own sequence, and every number of it is made in that
// order alone: its bits depend neither on other rows, nor on threads, nor, in a tree, on the slots
// between those that it sees.
#pragma once

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2,fma")))

enum { LANES_OF_8 = 8, BLOCK = 32, PIECE = 64 };

// One head's queries: what each sees are the slots [first, end) and, in a tree, `others` of the
// step's rows, which lie behind. Scores are kept in that order, without gaps.
typedef struct {
  const float *query; // [dim]
  float *scores;      // [end - first + rows of the step], and up to 7 more
  float *mixed;       // [dim]
  const float *bias;  // [slots], or NULL
  size_t first, end;
  const uint8_t *others; // [rows of the step], or NULL: 1 where one is seen
  size_t count;          // of scores
} QueryRow;

typedef struct {
  const float *keys, *values; // [slots, dim] of one head
  size_t dim, past, rows;     // slots before the step, and rows of the step
  float scale, softcap;
} Head;

// The eight vectors' sums, each added up in the same order.
AVX2 static inline __m256 sums_of(const __m256 v[8]) {
  const __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
  const __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
  return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

AVX2 static inline float sum_of(__m256 v) {
  __m256 eight[8];
  for (int i = 0; i < 8; i++)
    eight[i] = v;
  return _mm256_cvtss_f32(sums_of(eight));
}

// e to the power of numbers that are at most 0, within 2 units in the last place; 1e-38 where it
// would be less. The polynomial is that of Cephes' expf.
AVX2 static inline __m256 exponential(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(-87.3f), x); // in this order, what is not a number stays so
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_fmadd_ps(p, _mm256_mul_ps(r, r), _mm256_add_ps(r, _mm256_set1_ps(1.0f)));
  const __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
  return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}

// The hyperbolic tangent, to 1e-7.
AVX2 static inline __m256 tangent(__m256 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f), one = _mm256_set1_ps(1.0f);
  const __m256 size = _mm256_andnot_ps(sign, x);
  const __m256 t = exponential(_mm256_mul_ps(_mm256_set1_ps(-2.0f), size));
  const __m256 found = _mm256_div_ps(_mm256_sub_ps(one, t), _mm256_add_ps(one, t));
  return _mm256_or_ps(found, _mm256_and_ps(sign, x));
}

// The products of a query with eight keys.
AVX2 static inline __attribute__((always_inline)) __m256 products_of(const float *query,
                                                                     const float *const key[8],
                                                                     size_t dim) {
  const size_t whole = dim - dim % LANES_OF_8;
  __m256 sums[8];
  for (int j = 0; j < 8; j++)
    sums[j] = _mm256_setzero_ps();
  for (size_t c = 0; c < whole; c += LANES_OF_8) {
    const __m256 q = _mm256_loadu_ps(query + c);
    for (int j = 0; j < 8; j++)
      sums[j] = _mm256_fmadd_ps(q, _mm256_loadu_ps(key[j] + c), sums[j]);
  }
  if (whole == dim)
    return sums_of(sums);
  float found[8];
  _mm256_storeu_ps(found, sums_of(sums));
  for (size_t c = whole; c < dim; c++)
    for (int j = 0; j < 8; j++)
      found[j] += query[c] * key[j][c];
  return _mm256_loadu_ps(found);
}

// The products of a query with `count` keys that follow one another.
AVX2 static void score(const float *query, const float *keys, size_t dim, size_t count,
                       float *scores) {
  const float *key[8];
  size_t slot = 0;
  for (; slot + 8 <= count; slot += 8) {
    for (size_t j = 0; j < 8; j++)
      key[j] = keys + (slot + j) * dim;
    _mm256_storeu_ps(scores + slot, products_of(query, key, dim));
  }
  if (slot == count)
    return;
  for (size_t j = 0; j < 8; j++) // the last one again, for what is missing
    key[j] = keys + (slot + j < count ? slot + j : count - 1) * dim;
  float found[8];
  _mm256_storeu_ps(found, products_of(query, key, dim));
  for (size_t j = 0; slot + j < count; j++)
    scores[slot + j] = found[j];
}

// Scores become weights that sum up to 1.
AVX2 static void soften(const Head *head, QueryRow *row) {
  float *scores = row->scores;
  const size_t count = row->count, padded = (count + 7) / 8 * 8;
  for (size_t i = count; i < padded; i++)
    scores[i] = 0.0f;
  const __m256 cap = _mm256_set1_ps(head->softcap), scale = _mm256_set1_ps(head->scale);
  for (size_t i = 0; i < padded; i += 8) {
    __m256 score = _mm256_mul_ps(_mm256_loadu_ps(scores + i), scale);
    if (head->softcap > 0.0f)
      score = _mm256_mul_ps(cap, tangent(_mm256_div_ps(score, cap)));
    _mm256_storeu_ps(scores + i, score);
  }
  if (row->bias) {
    size_t place = 0;
    for (size_t slot = row->first; slot < row->end; slot++)
      scores[place++] += row->bias[slot];
    for (size_t other = 0; row->others && other < head->rows; other++)
      if (row->others[other])
        scores[place++] += row->bias[head->past + other];
  }
  for (size_t i = count; i < padded; i++)
    scores[i] = -INFINITY;
  __m256 highest = _mm256_loadu_ps(scores), sum = _mm256_setzero_ps();
  for (size_t i = 8; i < padded; i += 8)
    highest = _mm256_max_ps(highest, _mm256_loadu_ps(scores + i));
  highest = _mm256_max_ps(highest, _mm256_permute2f128_ps(highest, highest, 1));
  highest = _mm256_max_ps(highest, _mm256_shuffle_ps(highest, highest, 0x4e));
  highest = _mm256_max_ps(highest, _mm256_shuffle_ps(highest, highest, 0xb1));
  for (size_t i = 0; i < padded; i += 8) {
    const __m256 weight = exponential(_mm256_sub_ps(_mm256_loadu_ps(scores + i), highest));
    sum = _mm256_add_ps(sum, weight);
    _mm256_storeu_ps(scores + i, weight);
  }
  const float total = sum_of(sum);
  for (size_t i = 0; i < count; i++)
    scores[i] /= total;
}

// Add `count` values to what is mixed, by their weights: one chain of fused products a channel.
AVX2 static inline void mix(const float *weights, const float *values, size_t dim, size_t count,
                            float *mixed) {
  size_t c = 0;
  for (; c + PIECE <= dim; c += PIECE) {
    __m256 sums[8];
    for (int i = 0; i < 8; i++)
      sums[i] = _mm256_loadu_ps(mixed + c + 8 * i);
    for (size_t slot = 0; slot < count; slot++) {
      const __m256 weight = _mm256_broadcast_ss(weights + slot);
      const float *value = values + slot * dim + c;
      for (int i = 0; i < 8; i++)
        sums[i] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(value + 8 * i), sums[i]);
    }
    for (int i = 0; i < 8; i++)
      _mm256_storeu_ps(mixed + c + 8 * i, sums[i]);
  }
  for (size_t slot = 0; c < dim && slot < count; slot++)
    for (size_t rest = c; rest < dim; rest++)
      mixed[rest] = fmaf(weights[slot], values[slot * dim + rest], mixed[rest]);
}

// How many slots of a block a row sees of those that follow one another, and the first.
static inline size_t seen_of(const QueryRow *row, size_t block, size_t *from) {
  const size_t to = row->end < block + BLOCK ? row->end : block + BLOCK;
  *from = row->first > block ? row->first : block;
  return *from < to ? to - *from : 0;
}

// All rows over one head's cache, which is read in blocks: each is in the nearest cache while the
// rows see it.
AVX2 static void attend(const Head *head, QueryRow *rows, size_t count) {
  const size_t dim = head->dim;
  size_t first = SIZE_MAX, end = 0;
  for (size_t r = 0; r < count; r++) {
    first = rows[r].first < first ? rows[r].first : first;
    end = rows[r].end > end ? rows[r].end : end;
    memset(rows[r].mixed, 0, dim * sizeof(float));
  }
  for (size_t block = first; block < end; block += BLOCK)
    for (size_t r = 0; r < count; r++) {
      const QueryRow *row = rows + r;
      size_t from;
      const size_t seen = seen_of(row, block, &from);
      if (seen)
        score(row->query, head->keys + from * dim, dim, seen, row->scores + from - row->first);
    }
  for (size_t r = 0; r < count; r++) {
    QueryRow *row = rows + r;
    row->count = row->end - row->first;
    for (size_t other = 0; row->others && other < head->rows; other++)
      if (row->others[other])
        score(row->query, head->keys + (head->past + other) * dim, dim, 1,
              row->scores + row->count++);
    soften(head, row);
  }
  for (size_t block = first; block < end; block += BLOCK)
    for (size_t r = 0; r < count; r++) {
      const QueryRow *row = rows + r;
      size_t from;
      const size_t seen = seen_of(row, block, &from);
      if (seen)
        mix(row->scores + from - row->first, head->values + from * dim, dim, seen, row->mixed);
    }
  for (size_t r = 0; r < count; r++) {
    const QueryRow *row = rows + r;
    size_t place = row->end - row->first;
    for (size_t other = 0; row->others && other < head->rows; other++)
      if (row->others[other])
        mix(row->scores + place++, head->values + (head->past + other) * dim, dim, 1, row->mixed);
  }
}

// Turn the first 2 x `half` channels of a head by their position's angles, and copy the rest.
AVX2 static void rotate(const float *from, const float *cosines, const float *sines, size_t half,
                        size_t dim, float *to) {
  for (size_t i = 0; i < half; i++) {
    const float a = from[i], b = from[i + half];
    to[i] = a * cosines[i] - b * sines[i];
    to[i + half] = b * cosines[i] + a * sines[i];
  }
  memcpy(to + 2 * half, from + 2 * half, (dim - 2 * half) * sizeof *to);
}
