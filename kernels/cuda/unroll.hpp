#pragma once

// SYNCNORM_UNROLL before a loop: arrays that it indexes stay in registers. The
// host compiler, which compiles the same functions for tests, needs no help.
#ifdef __CUDA_ARCH__
#define SYNCNORM_UNROLL _Pragma("unroll")
#else
#define SYNCNORM_UNROLL
#endif
