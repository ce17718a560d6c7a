// Operators for ONNX Runtime on a CPU: see panels.h and cached_attention.h.

#include "cached_attention.h"
#include "panels.h"

static Status *create_panels(const Operator *operator, Api api, const Info *info, void **state) {
  Panels *panels = calloc(1, sizeof *panels);
  if (!panels)
    return fail(api, "out of memory");
  panels->api = api;
  panels->with = instructions();
  Status *status = NULL;
  if (operator->compute_or_fail == multiply)
    status = GET_INTEGER(api)(info, "columns", &panels->columns);
  if (status)
    free(panels);
  else
    *state = panels;
  return status;
}

static Status *create_attention(const Operator *operator, Api api, const Info *info, void **state) {
  Attention read = {.api = api};
  TRY(GET_INTEGER(api)(info, "heads", &read.heads));
  TRY(GET_INTEGER(api)(info, "kv_heads", &read.kv_heads));
  TRY(GET_INTEGER(api)(info, "window", &read.window));
  TRY(GET_FLOAT(api)(info, "scale", &read.scale));
  TRY(GET_FLOAT(api)(info, "softcap", &read.softcap));
  Attention *attention = malloc(sizeof *attention);
  if (!attention)
    return fail(api, "out of memory");
  *attention = read;
  *state = attention;
  return NULL;
}

static const char *provider(const Operator *operator) { return "CPUExecutionProvider"; }
static size_t one(const Operator *operator) { return 1; }
static size_t three(const Operator *operator) { return 3; }
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
static int gather_kind(const Operator *operator, size_t index) { return REQUIRED; }
static int gather_type(const Operator *operator, size_t index) {
  return index == 0 ? ANY_TYPE : INT64;
}

static const char *attend_step_name(const Operator *operator) { return "CachedAttention"; }
static size_t attend_step_inputs(const Operator *operator) { return 11; }
static int attend_step_kind(const Operator *operator, size_t index) {
  return index == 1 || index == 2 || index >= 8 ? OPTIONAL : REQUIRED;
}
static int attend_step_type(const Operator *operator, size_t index) {
  return index == 5 ? INT32 : index == 6 ? INT64 : index == 7 ? BOOL : FLOAT;
}

#define OPERATOR(NAME, CREATE, OUTPUTS)                                                            \
  {.version = API_VERSION,                                                                         \
   .name = NAME##_name,                                                                            \
   .provider = provider,                                                                           \
   .input_type = NAME##_type,                                                                      \
   .inputs = NAME##_inputs,                                                                        \
   .output_type = float_type,                                                                      \
   .outputs = OUTPUTS,                                                                             \
   .destroy = free,                                                                                \
   .input_kind = NAME##_kind,                                                                      \
   .output_kind = zero,                                                                            \
   .input_memory = zero,                                                                           \
   .least_inputs = single,                                                                         \
   .same_inputs = single,                                                                          \
   .least_outputs = single,                                                                        \
   .same_outputs = single,                                                                         \
   .create_or_fail = CREATE,                                                                       \
   .compute_or_fail = NAME,                                                                        \
   .first_version = single,                                                                        \
   .last_version = latest}

static const Operator operators[] = {OPERATOR(multiply, create_panels, one),
                                     OPERATOR(gather, create_panels, one),
                                     OPERATOR(attend_step, create_attention, three)};

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
