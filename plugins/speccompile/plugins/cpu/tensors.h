// What operators read and write, and how they fail.
#pragma once

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime.h"

#define TRY(CALL)                                                                                  \
  do {                                                                                             \
    Status *status = CALL;                                                                         \
    if (status)                                                                                    \
      return status;                                                                               \
  } while (0)

enum { MOST_DIMENSIONS = 8 };

typedef struct {
  void *data;
  int64_t dimensions[MOST_DIMENSIONS];
  size_t rank;
  int type;
} Tensor;

static Status *fail(Api api, const char *why) { return CREATE_STATUS(api)(INVALID_ARGUMENT, why); }

static Status *read_input(Api api, const Context *context, size_t index, Tensor *tensor) {
  const Value *value = NULL;
  TRY(GET_INPUT(api)(context, index, &value));
  if (!value)
    return NULL;
  Shape *shape = NULL;
  TRY(GET_SHAPE(api)(value, &shape));
  Status *status = GET_TYPE(api)(shape, &tensor->type);
  if (!status)
    status = GET_RANK(api)(shape, &tensor->rank);
  if (!status && tensor->rank > MOST_DIMENSIONS)
    status = fail(api, "too many dimensions");
  if (!status)
    status = GET_DIMENSIONS(api)(shape, tensor->dimensions, tensor->rank);
  FREE_SHAPE(api)(shape);
  TRY(status);
  return GET_DATA(api)((Value *)value, &tensor->data);
}

static Status *new_output(Api api, Context *context, size_t index, const int64_t *dimensions,
                          size_t rank, float **data) {
  Value *value = NULL;
  TRY(GET_OUTPUT(api)(context, index, dimensions, rank, &value));
  return GET_DATA(api)(value, (void **)data);
}
