// What schema.py says to the kernels.
#pragma once

constexpr int INVALID = -1;
constexpr int MOST_NODES = 1024;

enum Rule { GREEDY, WALK, TOKEN, TRAVERSAL };
