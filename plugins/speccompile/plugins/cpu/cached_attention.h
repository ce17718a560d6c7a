// The operator CachedAttention: rotary embedding, cache update and attention of a step.
//
//   0  query        [B, N, H D] float32, or with 1 and 2 absent [B, N, (H + 2 G) D]: q, k and v
//   1  key          [B, N, G D] float32 (optional)
//   2  value        [B, N, G D] float32 (optional)
//   3  key_cache    [B, G, S, D] float32
//   4  value_cache  [B, G, S, D] float32
//   5  past_lens    [B] int32: rows in the cache, behind which the step's are written
//   6  position_ids [B, N] int64: where a row is turned to, and what its window counts from
//   7  ancestors    [N, N] bool: the rows of the step that each row sees, itself included; or [0, 0]:
//                   those before it and itself
//   8  cosines      [positions, half] float32 (optional): the first 2 half channels are turned
//   9  sines        [positions, half] float32 (optional)
//   10 bias         [B or 1, H, N, slots] float32 (optional): added to the scores
//   -> mixed [B, N, H D], key_cache, value_cache: as given, with the step's rows
//
// attributes: heads (H), kv_heads (G), scale, softcap (0: none), window (positions; 0: all)
//
// A cache that is bound as input and output is updated where it lies; another one is copied.
#pragma once

#include "attention.h"
#include "tensors.h"

enum { ROWS_TOGETHER = 16, PARTS = 8, FEW_PRODUCTS = 1 << 17 };

typedef struct {
  Api api;
  int64_t heads, kv_heads, window;
  float scale, softcap;
} Attention;

typedef struct {
  const Attention *with;
  Tensor query, key, value, keys, values, past, positions, ancestors, cosines, sines, bias;
  const float *q, *k, *v;       // the first row's
  size_t q_stride, kv_stride;   // to the next row's
  float *mixed, *new_keys, *new_values;
  size_t batch, rows, heads, kv_heads, dim, slots, half, group, parts;
  int failed; // for want of memory
} Step;

static size_t past_of(const Step *step, size_t sequence) {
  return (size_t)((const int32_t *)step->past.data)[sequence];
}

static int64_t position_of(const Step *step, size_t row) {
  return ((const int64_t *)step->positions.data)[row];
}

static void turn(const Step *step, size_t row, const float *from, float *to) {
  const size_t angle = step->half * (size_t)(step->half ? position_of(step, row) : 0);
  rotate(from, (const float *)step->cosines.data + angle, (const float *)step->sines.data + angle,
         step->half, step->dim, to);
}

// The step's keys and values of one head, into its cache.
static void append_part(void *given, size_t part) {
  const Step *step = given;
  const size_t sequence = part / step->kv_heads, head = part % step->kv_heads, dim = step->dim;
  const size_t at = (part * step->slots + past_of(step, sequence)) * dim;
  for (size_t n = 0; n < step->rows; n++) {
    const size_t row = sequence * step->rows + n;
    turn(step, row, step->k + row * step->kv_stride + head * dim, step->new_keys + at + n * dim);
    memcpy(step->new_values + at + n * dim, step->v + row * step->kv_stride + head * dim,
           dim * sizeof(float));
  }
}

// Which slots row n of a sequence sees, of those before the step or, in a chain, up to its own.
static void find_seen(const Step *step, size_t sequence, size_t n, QueryRow *row, uint8_t *others) {
  const size_t past = past_of(step, sequence);
  const int64_t window = step->with->window;
  const int64_t *positions = (const int64_t *)step->positions.data + sequence * step->rows;
  const int64_t near = window ? positions[n] - window + 1 : 0;
  row->first = near > 0 ? (size_t)near : 0;
  row->end = past + n + 1;
  row->others = NULL;
  if (step->ancestors.dimensions[0] == 0)
    return;
  const uint8_t *seen = (const uint8_t *)step->ancestors.data + n * step->rows;
  for (size_t other = 0; other < step->rows; other++)
    others[other] = seen[other] && positions[other] >= near;
  row->others = others;
  row->end = past;
  row->first = row->first < past ? row->first : past;
}

// Some rows of the queries that share a head of keys and values.
static void attend_part(void *given, size_t part) {
  Step *step = given;
  const size_t unit = part / step->parts, all = step->rows * step->group, dim = step->dim;
  const size_t sequence = unit / step->kv_heads, kv_head = unit % step->kv_heads;
  const size_t from = all * (part % step->parts) / step->parts;
  const size_t count = all * (part % step->parts + 1) / step->parts - from;
  const size_t past = past_of(step, sequence);
  const size_t width = (past + step->rows + 7) / 8 * 8;
  float *numbers = malloc(count * (width + dim) * sizeof *numbers + count * step->rows);
  if (!numbers) {
    step->failed = 1;
    return;
  }
  uint8_t *others = (uint8_t *)(numbers + count * (width + dim));
  QueryRow rows[ROWS_TOGETHER];
  for (size_t r = 0; r < count; r++) {
    const size_t n = (from + r) / step->group, row = sequence * step->rows + n;
    const size_t head = kv_head * step->group + (from + r) % step->group;
    float *query = numbers + r * (width + dim);
    turn(step, row, step->q + row * step->q_stride + head * dim, query);
    rows[r] = (QueryRow){.query = query,
                         .scores = query + dim,
                         .mixed = step->mixed + (row * step->heads + head) * dim};
    if (step->bias.data) {
      const size_t wide = (size_t)step->bias.dimensions[3];
      const size_t of = step->bias.dimensions[0] == 1 ? 0 : sequence;
      const size_t place = (of * step->heads + head) * step->rows + n;
      rows[r].bias = (const float *)step->bias.data + place * wide;
    }
    find_seen(step, sequence, n, rows + r, others + r * step->rows);
  }
  const size_t cache = unit * step->slots * dim;
  const Head head = {.keys = step->new_keys + cache,
                     .values = step->new_values + cache,
                     .dim = dim,
                     .past = past,
                     .rows = step->rows,
                     .scale = step->with->scale,
                     .softcap = step->with->softcap};
  attend(&head, rows, count);
  free(numbers);
}

static int has_shape(const Tensor *tensor, size_t rank, const int64_t *dimensions) {
  return tensor->rank == rank &&
         memcmp(tensor->dimensions, dimensions, rank * sizeof *dimensions) == 0;
}

#define HAS_SHAPE(TENSOR, ...)                                                                     \
  has_shape(TENSOR, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static Status *read_step(Api api, const Context *context, Step *step) {
  Tensor *inputs[] = {&step->query,     &step->key,       &step->value,   &step->keys,
                      &step->values,    &step->past,      &step->positions,
                      &step->ancestors, &step->cosines,   &step->sines,   &step->bias};
  for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++)
    TRY(read_input(api, context, i, inputs[i]));
  const int64_t heads = step->with->heads, kv_heads = step->with->kv_heads;
  if (step->query.rank != 3 || step->keys.rank != 4 || kv_heads < 1 || heads % kv_heads)
    return fail(api, "queries are [B, N, heads D] and caches [B, kv_heads, S, D]");
  const int64_t batch = step->query.dimensions[0], rows = step->query.dimensions[1];
  const int64_t slots = step->keys.dimensions[2], dim = step->keys.dimensions[3];
  const int64_t packed = step->key.data ? heads : heads + 2 * kv_heads;
  if (!HAS_SHAPE(&step->query, batch, rows, packed * dim) ||
      (step->key.data && !HAS_SHAPE(&step->key, batch, rows, kv_heads * dim)) ||
      (step->key.data && !HAS_SHAPE(&step->value, batch, rows, kv_heads * dim)))
    return fail(api, "queries, keys and values are not rows of these heads");
  if (!HAS_SHAPE(&step->keys, batch, kv_heads, slots, dim) ||
      !HAS_SHAPE(&step->values, batch, kv_heads, slots, dim))
    return fail(api, "caches are not [B, kv_heads, S, D]");
  if (!HAS_SHAPE(&step->past, batch) || !HAS_SHAPE(&step->positions, batch, rows))
    return fail(api, "past_lens are [B], and position_ids [B, N]");
  if (!HAS_SHAPE(&step->ancestors, 0, 0) && !HAS_SHAPE(&step->ancestors, rows, rows))
    return fail(api, "ancestors are [N, N], or none");
  step->batch = (size_t)batch, step->rows = (size_t)rows, step->slots = (size_t)slots;
  step->heads = (size_t)heads, step->kv_heads = (size_t)kv_heads, step->dim = (size_t)dim;
  step->group = step->heads / step->kv_heads;
  step->q = step->query.data, step->q_stride = (size_t)step->query.dimensions[2];
  if (step->key.data) {
    step->k = step->key.data, step->v = step->value.data;
    step->kv_stride = step->kv_heads * step->dim;
  } else {
    step->k = step->q + step->heads * step->dim, step->v = step->k + step->kv_heads * step->dim;
    step->kv_stride = step->q_stride;
  }
  if (step->cosines.data)
    step->half = (size_t)step->cosines.dimensions[1];
  const int64_t *angles = step->cosines.dimensions;
  if (step->half && (2 * step->half > step->dim || !HAS_SHAPE(&step->cosines, angles[0], angles[1]) ||
                     !HAS_SHAPE(&step->sines, angles[0], angles[1])))
    return fail(api, "cosines and sines are [positions, half of a head's channels at most]");
  return NULL;
}

// Nothing outside of a tensor is read or written.
static Status *check_places(Api api, const Step *step) {
  int64_t longest = 0;
  for (size_t sequence = 0; sequence < step->batch; sequence++) {
    const int64_t past = ((const int32_t *)step->past.data)[sequence];
    longest = past > longest ? past : longest;
    if (past < 0 || past + (int64_t)step->rows > (int64_t)step->slots)
      return fail(api, "the cache has no room for the rows of the step");
  }
  const int64_t places = step->half ? step->cosines.dimensions[0] : INT64_MAX;
  for (size_t row = 0; row < step->batch * step->rows; row++)
    if (position_of(step, row) < 0 || position_of(step, row) >= places)
      return fail(api, "a position is outside of the cosines");
  const int64_t *bias = step->bias.dimensions;
  if (step->bias.data && (step->bias.rank != 4 || (bias[0] != 1 && bias[0] != step->query.dimensions[0]) ||
                          bias[1] != (int64_t)step->heads || bias[2] != (int64_t)step->rows ||
                          bias[3] < longest + (int64_t)step->rows))
    return fail(api, "the bias is [B, heads, N, at least the slots so far]");
  return NULL;
}

static Status *write_caches(Api api, Context *context, Step *step) {
  const size_t numbers = step->batch * step->kv_heads * step->slots * step->dim;
  TRY(new_output(api, context, 1, step->keys.dimensions, 4, &step->new_keys));
  TRY(new_output(api, context, 2, step->values.dimensions, 4, &step->new_values));
  if (step->new_keys != step->keys.data)
    memcpy(step->new_keys, step->keys.data, numbers * sizeof(float));
  if (step->new_values != step->values.data)
    memcpy(step->new_values, step->values.data, numbers * sizeof(float));
  return NULL;
}

static Status *each_part(Api api, const Context *context, void (*work)(void *, size_t),
                         size_t parts, int is_little, Step *step) {
  if (!is_little)
    return PARALLEL_FOR(api)(context, work, parts, 0, step);
  for (size_t part = 0; part < parts; part++)
    work(step, part);
  return NULL;
}

static Status *attend_step(void *state, Context *context) {
  const Attention *attention = state;
  Api api = attention->api;
  Step step = {.with = attention};
  TRY(read_step(api, context, &step));
  TRY(check_places(api, &step));
  const int64_t shape[] = {(int64_t)step.batch, (int64_t)step.rows, (int64_t)(step.heads * step.dim)};
  TRY(new_output(api, context, 0, shape, 3, &step.mixed));
  TRY(write_caches(api, context, &step));
  if (step.batch * step.rows == 0)
    return NULL;
  const size_t units = step.batch * step.kv_heads, all = step.rows * step.group;
  size_t longest = 0;
  for (size_t sequence = 0; sequence < step.batch; sequence++)
    longest = past_of(&step, sequence) > longest ? past_of(&step, sequence) : longest;
  const size_t products = units * all * (longest + step.rows) * step.dim;
  const int is_little = products < FEW_PRODUCTS;
  step.parts = (all + ROWS_TOGETHER - 1) / ROWS_TOGETHER;
  if (step.parts * units < PARTS)
    step.parts = all < (PARTS + units - 1) / units ? all : (PARTS + units - 1) / units;
  TRY(each_part(api, context, append_part, units, step.rows < ROWS_TOGETHER, &step));
  TRY(each_part(api, context, attend_part, units * step.parts, is_little, &step));
  return step.failed ? fail(api, "out of memory") : NULL;
}
