// All kernels, one module.
#include "compact.cu"
#include "round.cu"
#include "rows.cu"
#include "tree_mask.cu"
#include "walk.cu"
