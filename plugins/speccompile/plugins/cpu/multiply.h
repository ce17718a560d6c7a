// Rows times a matrix that is stored in panels.
//
// A panel is WIDTH outputs of a layer: [depth, WIDTH], so that a vector of weights lies together for
// each input. One row reads the matrix once, in order, at the speed of memory; several rows read it
// once together.
#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "onnxruntime.h"

enum { WIDTH = 16, AT_ONCE = 6, MANY = 3 * AT_ONCE };

// Weights are asked for before they are needed: left alone, a processor stops at the end of every page
// of 4 KB, which several rows are too busy to hide. Behind the last panel it asks for nothing.
enum { AHEAD = 2048 };
#define FETCH(P) _mm_prefetch((const char *)(P) + AHEAD, _MM_HINT_T0)

typedef void Rows(int rows, int count, const float *x, size_t depth, const void *panels,
                  const float *scales, float *y, size_t stride);

// What one instruction set does.
typedef struct {
  Rows *floats, *halves, *bfloats, *bytes;
  void (*widen)(int type, const void *panel, size_t count, float *wide);
  int (*together)(int rows);
} Instructions;

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define OF(NAME) NAME##_avx2
#define LANES 8
#define V __m256
#define ZERO _mm256_setzero_ps()
#define SPREAD(P) _mm256_broadcast_ss(P)
#define READ(P) _mm256_loadu_ps(P)
#define WRITE(P, A) _mm256_storeu_ps(P, A)
#define ADD_PRODUCT(A, B, SUM) _mm256_fmadd_ps(A, B, SUM)
#define PRODUCT(A, B) _mm256_mul_ps(A, B)
#define FROM_FLOAT(P) _mm256_loadu_ps(P)
#define FROM_HALF(P) _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(P)))
#define FROM_BFLOAT16(P)                                                                           \
  _mm256_castsi256_ps(                                                                             \
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(P))), 16))
#define FROM_INT8(P)                                                                               \
  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(P))))
#define TOGETHER(ROWS) ((ROWS) == 1 ? 4 : (ROWS) <= 3 ? 2 : 1)
#include "rows.h"

#define TARGET __attribute__((target("avx512f")))
#define OF(NAME) NAME##_avx512
#define LANES 16
#define V __m512
#define ZERO _mm512_setzero_ps()
#define SPREAD(P) _mm512_set1_ps(*(P))
#define READ(P) _mm512_loadu_ps(P)
#define WRITE(P, A) _mm512_storeu_ps(P, A)
#define ADD_PRODUCT(A, B, SUM) _mm512_fmadd_ps(A, B, SUM)
#define PRODUCT(A, B) _mm512_mul_ps(A, B)
#define FROM_FLOAT(P) _mm512_loadu_ps(P)
#define FROM_HALF(P) _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(P)))
#define FROM_BFLOAT16(P)                                                                           \
  _mm512_castsi512_ps(                                                                             \
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(P))), 16))
#define FROM_INT8(P) _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(P))))
#define TOGETHER(ROWS) ((ROWS) <= 3 ? 4 : 2)
#include "rows.h"

// What this processor has; NULL where that is too little. Whatever has AVX2 has F16C, which older
// compilers cannot ask for.
static const Instructions *instructions(void) {
  if (__builtin_cpu_supports("avx512f"))
    return &instructions_avx512;
  const int enough = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return enough ? &instructions_avx2 : NULL;
}

typedef struct {
  const Instructions *with;
  const float *x;      // [rows, depth]
  const void *panels;  // [panels, depth, WIDTH], of `type`
  const float *scales; // [panels, WIDTH], or NULL
  float *y;            // [rows, columns]
  size_t rows, depth, columns, count;
  int type;
  size_t parts;
} Product;

static size_t number_bytes(int type) { return type == FLOAT ? 4 : type == INT8 ? 1 : 2; }

static Rows *rows_of(const Instructions *with, int type) {
  return type == FLOAT ? with->floats
         : type == FLOAT16 ? with->halves
         : type == BFLOAT16 ? with->bfloats
                            : with->bytes;
}

// All rows by `count` panels from the number `first` on. The last panel's outputs may be fewer than
// WIDTH.
static void panels_of(const Product *p, Rows *multiply, const void *panels, size_t first, int count) {
  const float *scales = p->scales ? p->scales + first * WIDTH : NULL;
  const int whole = first * WIDTH + (size_t)count * WIDTH <= p->columns;
  const size_t pieces = (p->rows + AT_ONCE - 1) / AT_ONCE;
  for (size_t piece = 0; piece < pieces; piece++) {
    const size_t from = p->rows * piece / pieces, to = p->rows * (piece + 1) / pieces;
    const float *x = p->x + from * p->depth;
    float *y = p->y + from * p->columns + first * WIDTH;
    if (whole) {
      multiply((int)(to - from), count, x, p->depth, panels, scales, y, p->columns);
      continue;
    }
    float padded[AT_ONCE * WIDTH];
    multiply((int)(to - from), 1, x, p->depth, panels, scales, padded, WIDTH);
    for (size_t row = 0; row < to - from; row++)
      memcpy(y + row * p->columns, padded + row * WIDTH, (p->columns - first * WIDTH) * sizeof *y);
  }
}

// One of the parts of a product: some of its panels.
static void multiply_part(void *product, size_t part) {
  const Product *p = product;
  const size_t size = p->depth * WIDTH;
  const size_t end = p->count * (part + 1) / p->parts;
  float *wide = NULL;
  if (p->rows > MANY && p->type != FLOAT)
    wide = malloc(size * sizeof *wide); // without it, all is the same but slower
  for (size_t at = p->count * part / p->parts; at < end;) {
    const void *panels = (const char *)p->panels + at * size * number_bytes(p->type);
    const int most = p->rows <= AT_ONCE ? p->with->together((int)p->rows) : 1;
    const int count = at + most <= end && (at + most) * WIDTH <= p->columns ? most : 1;
    if (wide) {
      p->with->widen(p->type, panels, size, wide);
      panels_of(p, p->with->floats, wide, at, 1);
    } else {
      panels_of(p, rows_of(p->with, p->type), panels, at, count);
    }
    at += count;
  }
  free(wide);
}
