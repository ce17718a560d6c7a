// Operators over matrices that are stored in panels (see multiply.h).
//
//   PanelMatMul   rows [.., depth] float32, panels [panels, depth, WIDTH] float32, float16, bfloat16
//                 or int8, scales [panels * WIDTH] float32 (optional) -> [.., columns] float32
//   PanelGather   panels as above, ids [..] int64 -> [.., depth] float32: rows of the matrix, not
//                 scaled; of one that is an embedding too
//
// Weights are read where ONNX Runtime has mapped their file: nothing is converted when it opens.
#pragma once

#include "multiply.h"
#include "tensors.h"

enum { PART_BYTES = 1 << 16, FEW_PARTS = 16, MOST_PARTS = 64 };

typedef struct {
  Api api;
  const Instructions *with;
  int64_t columns;
} Panels;

static Status *read_panels(Api api, const Context *context, size_t index, Tensor *panels) {
  TRY(read_input(api, context, index, panels));
  const int type = panels->type;
  if (type != FLOAT && type != FLOAT16 && type != BFLOAT16 && type != INT8)
    return fail(api, "panels are float32, float16, bfloat16 or int8");
  if (panels->rank != 3 || panels->dimensions[2] != WIDTH)
    return fail(api, "panels are [panels, depth, 16]");
  return NULL;
}

static Status *multiply(void *state, Context *context) {
  const Panels *kernel = state;
  Api api = kernel->api;
  Tensor rows = {0}, panels = {0}, scales = {0};
  TRY(read_input(api, context, 0, &rows));
  TRY(read_panels(api, context, 1, &panels));
  TRY(read_input(api, context, 2, &scales));
  const int64_t depth = panels.dimensions[1], count = panels.dimensions[0];
  if (rows.rank == 0 || rows.dimensions[rows.rank - 1] != depth)
    return fail(api, "rows are not as deep as the panels");
  if (kernel->columns > count * WIDTH || kernel->columns <= (count - 1) * WIDTH)
    return fail(api, "columns are not those of the panels");
  if (scales.data && (scales.rank != 1 || scales.dimensions[0] != count * WIDTH))
    return fail(api, "scales are [panels * 16]");
  Product product = {.with = kernel->with,
                     .x = rows.data,
                     .panels = panels.data,
                     .scales = scales.data,
                     .rows = 1,
                     .depth = (size_t)depth,
                     .columns = (size_t)kernel->columns,
                     .count = (size_t)count,
                     .type = panels.type};
  for (size_t i = 0; i + 1 < rows.rank; i++)
    product.rows *= (size_t)rows.dimensions[i];
  rows.dimensions[rows.rank - 1] = kernel->columns;
  TRY(new_output(api, context, 0, rows.dimensions, rows.rank, &product.y));
  if (product.rows == 0)
    return NULL;
  const size_t bytes = product.count * product.depth * WIDTH * number_bytes(product.type);
  const size_t parts = product.rows > MANY ? FEW_PARTS : bytes / PART_BYTES + 1;
  product.parts = parts < MOST_PARTS ? parts : MOST_PARTS;
  if (product.parts > product.count)
    product.parts = product.count;
  return PARALLEL_FOR(api)(context, multiply_part, product.parts, 0, &product);
}

__attribute__((target("f16c"))) static float number(const void *data, int type, size_t place) {
  if (type == FLOAT)
    return ((const float *)data)[place];
  if (type == INT8)
    return (float)((const int8_t *)data)[place];
  const uint16_t bits = ((const uint16_t *)data)[place];
  if (type == FLOAT16)
    return _cvtsh_ss(bits);
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

static Status *gather(void *state, Context *context) {
  const Panels *kernel = state;
  Api api = kernel->api;
  Tensor panels = {0}, ids = {0};
  TRY(read_panels(api, context, 0, &panels));
  TRY(read_input(api, context, 1, &ids));
  if (ids.rank == MOST_DIMENSIONS)
    return fail(api, "too many dimensions");
  const int64_t depth = panels.dimensions[1], *wanted = ids.data;
  size_t count = 1;
  for (size_t i = 0; i < ids.rank; i++)
    count *= (size_t)ids.dimensions[i];
  ids.dimensions[ids.rank] = depth;
  float *y = NULL;
  TRY(new_output(api, context, 0, ids.dimensions, ids.rank + 1, &y));
  for (size_t row = 0; row < count; row++) {
    const int64_t id = wanted[row];
    if (id < 0 || id >= panels.dimensions[0] * WIDTH)
      return fail(api, "an id is outside of the panels");
    const size_t panel = (size_t)(id / WIDTH) * (size_t)depth;
    for (size_t i = 0; i < (size_t)depth; i++)
      *y++ = number(panels.data, panels.type, (panel + i) * WIDTH + (size_t)(id % WIDTH));
  }
  return NULL;
}
