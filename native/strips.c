/* Strips are processed in vectors of the machine's width: K rows stay in registers while the panel
 * is read. A tile of the panel stays in the nearest cache for all groups. */
#include "strips.h"

#include "machine.h"

enum { TILE = 64 }; /* numbers of a row in a tile; a multiple of the width of a strip */

#if defined(__AVX__) /* defined if enabled by a compiler flag */
#define LANES 4
#define MANY 1
#elif defined(__aarch64__)
#define LANES 2
#define MANY 2 /* K rows occupy 16 of the 32 registers */
#else
#define LANES 2
#define MANY 4
#endif
#define NAMED(name) name##_any
#define MACHINE
#include "strips_of.h"
#undef LANES
#undef MANY
#undef NAMED
#undef MACHINE

#ifdef MACHINES
#define LANES 4
#define MANY 1
#define NAMED(name) name##_v3
#define MACHINE __attribute__((target("arch=x86-64-v3")))
#include "strips_of.h"
#undef LANES
#undef MANY
#undef NAMED
#undef MACHINE

#define LANES 8
#define MANY 2
#define NAMED(name) name##_v4
#define MACHINE __attribute__((target("arch=x86-64-v4")))
#include "strips_of.h"

void rotate_strips(const Panel *panel, int k)
{
    if (__builtin_cpu_supports("x86-64-v4"))
        rotate_v4(panel, k);
    else if (__builtin_cpu_supports("x86-64-v3"))
        rotate_v3(panel, k);
    else
        rotate_any(panel, k);
}
#else
void rotate_strips(const Panel *panel, int k)
{
    rotate_any(panel, k);
}
#endif
