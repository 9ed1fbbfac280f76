/* Updates of strips: the columns of the triangle and of the new rows to the right of a panel. */
#ifndef ONEPASS_STRIPS_H
#define ONEPASS_STRIPS_H

#include <stddef.h>

enum { K = 8, PANEL = 16, GROUPS = 16 }; /* rows per group; rows per panel; maximum of groups */

/* The rotation of a row of the triangle by k new rows: rows.c, (1). */
typedef struct {
    double a[K], gain[K], retain[K];
    int sharp;
} Rotation;

/* Rows `from` to before `to` of the triangle; columns from `stop` on are not rotated yet. */
typedef struct {
    ptrdiff_t wide, from, to, stop;
    const double *row; /* row `from` before the update */
    double *next;      /* row `from` after the update */
    double *block;     /* groups of k rows, wide each */
    ptrdiff_t groups;
    Rotation rotations[GROUPS][PANEL];
    int sharp[GROUPS]; /* whether any rotation of the group is sharp */
} Panel;

/* (2) for all groups of k rows (1 or K), one after the other, with the rotations of the panel. */
void rotate_strips(const Panel *panel, int k);

#endif
