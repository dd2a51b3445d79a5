/* The whole kit: contexts, buffers and streams, training kernels, matrix products, attention, GGUF files.
 * C11 and C++20. docs/kit.md explains it in a page with a complete program. */
#pragma once
#include "traincore/attention.h"
#include "traincore/cuda.h"
#include "traincore/device.h"
#include "traincore/dtype.h"
#include "traincore/gemm.h"
#include "traincore/gguf.h"
#include "traincore/status.h"
#include "traincore/training.h"
