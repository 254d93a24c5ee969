// Included before Highway's foreach_target.h: which instruction sets get no
// code of their own. SSSE3 would serve CPUs before 2008, AVX3_DL adds nothing
// that is used here, and the scalable ones have no arrays of vectors.
#define HWY_DISABLED_TARGETS                                                   \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128   \
   | HWY_RVV)
