// What an operator needs of ONNX Runtime's C interface (onnxruntime_c_api.h, version 17).
//
// The interface is a table of functions that only ever grows at its end, so a function's place in it
// is what names it. The library is compiled without the header, which no package of Python has.
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { API_VERSION = 17, INVALID_ARGUMENT = 2, LATEST = INT32_MAX };
enum { FLOAT = 1, INT8 = 3, INT32 = 6, INT64 = 7, BOOL = 9, FLOAT16 = 10, BFLOAT16 = 16, ANY_TYPE = 0 };
enum { REQUIRED = 0, OPTIONAL = 1 };

typedef struct Status Status;
typedef struct Context Context;
typedef struct Info Info;
typedef struct Value Value;
typedef struct Shape Shape;
typedef struct Domain Domain;
typedef struct Options Options;
typedef const void *const *Api;

typedef struct {
  Api (*get_api)(uint32_t version);
  const char *(*get_version)(void);
} ApiBase;

#define CREATE_STATUS(api) ((Status * (*)(int, const char *)) api[0])
#define CREATE_DOMAIN(api) ((Status * (*)(const char *, Domain **)) api[26])
#define ADD_OPERATOR(api) ((Status * (*)(Domain *, const struct Operator *)) api[27])
#define ADD_DOMAIN(api) ((Status * (*)(Options *, Domain *)) api[28])
#define GET_DATA(api) ((Status * (*)(Value *, void **)) api[51])
#define GET_TYPE(api) ((Status * (*)(const Shape *, int *)) api[60])
#define GET_RANK(api) ((Status * (*)(const Shape *, size_t *)) api[61])
#define GET_DIMENSIONS(api) ((Status * (*)(const Shape *, int64_t *, size_t)) api[62])
#define GET_SHAPE(api) ((Status * (*)(const Value *, Shape **)) api[65])
#define GET_FLOAT(api) ((Status * (*)(const Info *, const char *, float *)) api[85])
#define GET_INTEGER(api) ((Status * (*)(const Info *, const char *, int64_t *)) api[86])
#define GET_INPUT(api) ((Status * (*)(const Context *, size_t, const Value **)) api[90])
#define GET_OUTPUT(api) ((Status * (*)(Context *, size_t, const int64_t *, size_t, Value **)) api[91])
#define FREE_SHAPE(api) ((void (*)(Shape *))api[99])
#define PARALLEL_FOR(api) \
  ((Status * (*)(const Context *, void (*)(void *, size_t), size_t, size_t, void *)) api[274])

typedef struct Operator {
  uint32_t version;
  void *(*create)(const struct Operator *, Api, const Info *);
  const char *(*name)(const struct Operator *);
  const char *(*provider)(const struct Operator *);
  int (*input_type)(const struct Operator *, size_t);
  size_t (*inputs)(const struct Operator *);
  int (*output_type)(const struct Operator *, size_t);
  size_t (*outputs)(const struct Operator *);
  void (*compute)(void *, Context *);
  void (*destroy)(void *);
  int (*input_kind)(const struct Operator *, size_t);
  int (*output_kind)(const struct Operator *, size_t);
  int (*input_memory)(const struct Operator *, size_t);
  int (*least_inputs)(const struct Operator *);
  int (*same_inputs)(const struct Operator *);
  int (*least_outputs)(const struct Operator *);
  int (*same_outputs)(const struct Operator *);
  Status *(*create_or_fail)(const struct Operator *, Api, const Info *, void **);
  Status *(*compute_or_fail)(void *, Context *);
  Status *(*infer_shapes)(const struct Operator *, void *);
  int (*first_version)(const struct Operator *);
  int (*last_version)(const struct Operator *);
} Operator;
