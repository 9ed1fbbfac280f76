/* Orthonormal columns as long as there are weights, read piece by piece.
 *
 * A piece is so short that what is read of all columns stays in the cache until it is read again,
 * and the next one is on its way meanwhile. What is summed over a stretch of a column is summed in
 * its own precision, stretch after stretch in double.
 */
#include "columns.h"

#include "machine.h"

enum {
    TOGETHER = 4,      /* columns that are read side by side */
    AT_HAND = 1 << 19, /* bytes of a piece, of all columns */
    SHORT = 1 << 8,    /* numbers of a piece; of fewer, lines come from everywhere */
    LONG = 1 << 11,    /* and no more: sums of so many keep their digits in float too */
    LINE = 64          /* bytes */
};

/* Numbers of each column in a piece, a multiple of what a line holds. */
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
