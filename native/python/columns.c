/* Products with long orthonormal columns, piece by piece.
 *
 * A piece is so short that it stays in the cache for all columns until it is read again, while the
 * next one is prefetched. Sums over a piece of a column are in the precision of the column, sums of
 * pieces in double.
 */
#include "columns.h"

#include "machine.h"

enum {
    TOGETHER = 4,      /* columns that are processed together */
    AT_HAND = 1 << 19, /* bytes of a piece of all columns */
    SHORT = 1 << 8,    /* minimum width of a piece */
    LONG = 1 << 11,    /* maximum width, for which sums in float are accurate enough */
    LINE = 64          /* bytes of a cache line */
};

/* Width of a piece, a multiple of a cache line. */
static ptrdiff_t width_of(ptrdiff_t q, ptrdiff_t size)
{
    const ptrdiff_t width = AT_HAND / (size * (q > 0 ? q : 1)) / SHORT * SHORT;
    return width < SHORT ? SHORT : width > LONG ? LONG : width;
}

#define NUMBER float
#define NAMED(name) name##_floats
#include "columns_of.h"
#undef NUMBER
#undef NAMED

#define NUMBER double
#define NAMED(name) name##_doubles
#include "columns_of.h"
