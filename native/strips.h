/* Strips of the triangle, beyond the columns that are turned: rows of a panel and the rows that come. */
#ifndef ONEPASS_STRIPS_H
#define ONEPASS_STRIPS_H

#include <stddef.h>

enum { K = 8, PANEL = 16, GROUPS = 16 }; /* rows of a group; of the triangle; groups at most */

/* What k rows do to a row of the triangle: rows.c, (1). */
typedef struct {
    double a[K], gain[K], kept[K];
    int sharp;
} Turn;

/* Rows `from` to before `to` of the triangle, whose numbers from `stop` on are still to be turned. */
typedef struct {
    ptrdiff_t wide, from, to, stop;
    const double *row; /* where row `from` stands, and is to stand */
    double *next;
    double *block;     /* groups of k rows, wide each */
    ptrdiff_t groups;
    Turn turns[GROUPS][PANEL];
    int sharp[GROUPS]; /* whether a turn of the group is */
} Panel;

/* (2) of all groups of k rows, 1 or K, one after the other, with the turns that are known. */
void turn_strips(const Panel *panel, int k);

#endif
