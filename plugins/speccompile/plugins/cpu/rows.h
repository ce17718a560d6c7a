// Rows times panels with one instruction set: included once for each, with these names defined.
//
//   TARGET   the attribute of functions that use it
//   OF(f)    the name of a function of this set
//   LANES    numbers of a vector V, of which a panel's WIDTH is a multiple
//   ZERO, SPREAD(p), READ(p), WRITE(p, v), ADD_PRODUCT(a, b, sum), PRODUCT(a, b)
//   FROM_FLOAT(p), FROM_HALF(p), FROM_BFLOAT16(p), FROM_INT8(p)   LANES weights as floats

#define SHARE (WIDTH / LANES) // vectors of a panel's row
#define UNROLL _Pragma("GCC unroll 12")

// `rows` of `x` [rows, depth] times `count` panels beside each other, into `y`, whose rows are
// `stride` apart. Every number is one chain of fused products along the depth, from 0: so its bits
// depend neither on how many rows there are, nor on threads, nor on the instruction set.
#define MULTIPLY(NAME, TYPE, FROM)                                                                 \
  TARGET static inline __attribute__((always_inline)) void OF(NAME)(                               \
      const int rows, const int count, const float *x, size_t depth, const TYPE *panels,           \
      const float *scales, float *y, size_t stride) {                                              \
    V sums[AT_ONCE][4 * SHARE];                                                                    \
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < count * SHARE; c++)           \
        sums[r][c] = ZERO;                                                                         \
    for (size_t i = 0; i < depth; i++)                                                             \
      UNROLL for (int c = 0; c < count; c++) {                                                     \
        const TYPE *place = panels + ((size_t)c * depth + i) * WIDTH;                              \
        FETCH(place);                                                                              \
        V weights[SHARE];                                                                          \
        UNROLL for (int s = 0; s < SHARE; s++) weights[s] = FROM(place + s * LANES);               \
        UNROLL for (int r = 0; r < rows; r++) {                                                    \
          const V input = SPREAD(x + (size_t)r * depth + i);                                       \
          UNROLL for (int s = 0; s < SHARE; s++)                                                   \
              sums[r][c * SHARE + s] = ADD_PRODUCT(input, weights[s], sums[r][c * SHARE + s]);     \
        }                                                                                          \
      }                                                                                            \
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int c = 0; c < count * SHARE; c++) {         \
      V sum = sums[r][c];                                                                          \
      if (scales)                                                                                  \
        sum = PRODUCT(sum, READ(scales + c * LANES));                                              \
      WRITE(y + (size_t)r * stride + c * LANES, sum);                                              \
    }                                                                                              \
  }                                                                                                \
                                                                                                   \
  TARGET static void OF(NAME##_rows)(int rows, int count, const float *x, size_t depth,            \
                                     const void *panels, const float *scales, float *y,            \
                                     size_t stride) {                                              \
    switch (count > 1 ? -rows : rows) {                                                            \
      CASE(NAME, 1) CASE(NAME, 2) CASE(NAME, 3) CASE(NAME, 4) CASE(NAME, 5) CASE(NAME, 6)          \
    }                                                                                              \
  }

// So many rows by one panel, or by as many as registers hold: `TOGETHER`.
#define CASE(NAME, ROWS)                                                                           \
  case ROWS:                                                                                       \
    OF(NAME)(ROWS, 1, x, depth, panels, scales, y, stride);                                        \
    break;                                                                                         \
  case -ROWS:                                                                                      \
    OF(NAME)(ROWS, TOGETHER(ROWS), x, depth, panels, scales, y, stride);                           \
    break;

MULTIPLY(floats, float, FROM_FLOAT)
MULTIPLY(halves, uint16_t, FROM_HALF)
MULTIPLY(bfloats, uint16_t, FROM_BFLOAT16)
MULTIPLY(bytes, int8_t, FROM_INT8)

// A panel as floats: of many rows, each reads it.
TARGET static void OF(widen)(int type, const void *panel, size_t count, float *wide) {
  for (size_t i = 0; i < count; i += LANES)
    WRITE(wide + i, type == FLOAT16    ? FROM_HALF((const uint16_t *)panel + i)
                    : type == BFLOAT16 ? FROM_BFLOAT16((const uint16_t *)panel + i)
                                       : FROM_INT8((const int8_t *)panel + i));
}

TARGET static int OF(together)(int rows) { return TOGETHER(rows); }

static const Instructions OF(instructions) = {
    OF(floats_rows), OF(halves_rows), OF(bfloats_rows), OF(bytes_rows), OF(widen), OF(together)};

#undef SHARE
#undef UNROLL
#undef MULTIPLY
#undef CASE
#undef TARGET
#undef OF
#undef LANES
#undef V
#undef ZERO
#undef SPREAD
#undef READ
#undef WRITE
#undef ADD_PRODUCT
#undef PRODUCT
#undef FROM_FLOAT
#undef FROM_HALF
#undef FROM_BFLOAT16
#undef FROM_INT8
#undef TOGETHER
