// Operators for ONNX Runtime on a CPU, over matrices that are stored in panels (see multiply.h).
//
//   PanelMatMul   rows [.., depth] float32, panels [panels, depth, WIDTH] float32, float16, bfloat16
//                 or int8, scales [panels * WIDTH] float32 (optional) -> [.., columns] float32
//   PanelGather   panels as above, ids [..] int64 -> [.., depth] float32: rows of the matrix, not
//                 scaled; of one that is an embedding too
//
// Weights are read where ONNX Runtime has mapped their file: nothing is converted when it opens.

#include "multiply.h"

#define TRY(CALL)                                                                                  \
  do {                                                                                             \
    Status *status = CALL;                                                                         \
    if (status)                                                                                    \
      return status;                                                                               \
  } while (0)

enum { MOST_DIMENSIONS = 8, PART_BYTES = 1 << 16, FEW_PARTS = 16, MOST_PARTS = 64 };

typedef struct {
  Api api;
  const Instructions *with;
  int64_t columns;
} Kernel;

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

static Status *read_panels(Api api, const Context *context, size_t index, Tensor *panels) {
  TRY(read_input(api, context, index, panels));
  const int type = panels->type;
  if (type != FLOAT && type != FLOAT16 && type != BFLOAT16 && type != INT8)
    return fail(api, "panels are float32, float16, bfloat16 or int8");
  if (panels->rank != 3 || panels->dimensions[2] != WIDTH)
    return fail(api, "panels are [panels, depth, 16]");
  return NULL;
}

static Status *new_output(Api api, Context *context, const int64_t *dimensions, size_t rank,
                          float **data) {
  Value *value = NULL;
  TRY(GET_OUTPUT(api)(context, 0, dimensions, rank, &value));
  return GET_DATA(api)(value, (void **)data);
}

static Status *multiply(void *state, Context *context) {
  const Kernel *kernel = state;
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
  TRY(new_output(api, context, rows.dimensions, rows.rank, &product.y));
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
  const Kernel *kernel = state;
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
  TRY(new_output(api, context, ids.dimensions, ids.rank + 1, &y));
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

static Status *create(const Operator *operator, Api api, const Info *info, void **state) {
  Kernel *kernel = calloc(1, sizeof *kernel);
  if (!kernel)
    return fail(api, "out of memory");
  kernel->api = api;
  kernel->with = instructions();
  Status *status = NULL;
  if (operator->compute_or_fail == multiply)
    status = GET_INTEGER(api)(info, "columns", &kernel->columns);
  if (status)
    free(kernel);
  else
    *state = kernel;
  return status;
}

static const char *provider(const Operator *operator) { return "CPUExecutionProvider"; }
static size_t one(const Operator *operator) { return 1; }
static int zero(const Operator *operator, size_t index) { return 0; }
static int single(const Operator *operator) { return 1; }
static int latest(const Operator *operator) { return LATEST; }
static int float_type(const Operator *operator, size_t index) { return FLOAT; }

static const char *multiply_name(const Operator *operator) { return "PanelMatMul"; }
static size_t multiply_inputs(const Operator *operator) { return 3; }
static int multiply_kind(const Operator *operator, size_t index) {
  return index == 2 ? OPTIONAL : REQUIRED;
}
static int multiply_type(const Operator *operator, size_t index) {
  return index == 1 ? ANY_TYPE : FLOAT;
}

static const char *gather_name(const Operator *operator) { return "PanelGather"; }
static size_t gather_inputs(const Operator *operator) { return 2; }
static int gather_type(const Operator *operator, size_t index) {
  return index == 0 ? ANY_TYPE : INT64;
}

#define OPERATOR(NAME, KIND)                                                                       \
  {.version = API_VERSION,                                                                         \
   .name = NAME##_name,                                                                            \
   .provider = provider,                                                                           \
   .input_type = NAME##_type,                                                                      \
   .inputs = NAME##_inputs,                                                                        \
   .output_type = float_type,                                                                      \
   .outputs = one,                                                                                 \
   .destroy = free,                                                                                \
   .input_kind = KIND,                                                                             \
   .output_kind = zero,                                                                            \
   .input_memory = zero,                                                                           \
   .least_inputs = single,                                                                         \
   .same_inputs = single,                                                                          \
   .least_outputs = single,                                                                        \
   .same_outputs = single,                                                                         \
   .create_or_fail = create,                                                                       \
   .compute_or_fail = NAME,                                                                        \
   .first_version = single,                                                                        \
   .last_version = latest}

static const Operator operators[] = {OPERATOR(multiply, multiply_kind), OPERATOR(gather, zero)};

// What ONNX Runtime calls when it opens the library for a session.
__attribute__((visibility("default"))) Status *RegisterCustomOps(Options *options,
                                                                 const ApiBase *base) {
  Api api = base->get_api(API_VERSION);
  if (!instructions())
    return fail(api, "the processor has no AVX2 and FMA");
  Domain *domain = NULL; // sessions of any age may use it: it is never freed
  TRY(CREATE_DOMAIN(api)("speccompile.cpu", &domain));
  for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
    TRY(ADD_OPERATOR(api)(domain, &operators[i]));
  return ADD_DOMAIN(api)(options, domain);
}
