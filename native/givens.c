#include "givens.h"

static const double MUCH = 0.25;    /* a row with a smaller D / D' is sharp */

/* (2) for k rows and a row of the triangle with m numbers. Left of its diagonal, which is 1, the
   triangle is 0, and after their columns were added the rows are 0 there too: these zeros remain.
   */
WITHIN void apply(const double *row, double *next, double *rows, ptrdiff_t wide, ptrdiff_t m,
                 const double *a, const double *gain, const int k)
{
    for (ptrdiff_t l = 0; l < m; l += WIDE) {
        vector u = *(const vector *)(row + l);
#pragma GCC unroll 8
        for (int i = 0; i < k; i++) {
            vector *at = (vector *)(rows + i * wide + l);
            const vector x = *at - a[i] * u;
            *at = x;
            u += gain[i] * x;
        }
        *(vector *)(next + l) = u;
    }
}

/* (2) if some of the k rows have much more information than all rows before them. */
WITHIN void apply_sharp(const double *row, double *next, double *rows, ptrdiff_t wide, ptrdiff_t m,
                       const double *a, const double *gain, const double *retain, const int k)
{
    for (ptrdiff_t l = 0; l < m; l += WIDE) {
        vector u = *(const vector *)(row + l);
        for (int i = 0; i < k; i++) {
            vector *at = (vector *)(rows + i * wide + l);
            const vector x = *at;
            *at = x - a[i] * u;
            u = retain[i] * u + gain[i] * x;
        }
        *(vector *)(next + l) = u;
    }
}

/* (1) for k rows and a column; returns D after these rows. */
WITHIN double rotation_of(Rotation *rotation, const double *rows, ptrdiff_t wide, double *q,
                          double past, const int k)
{
    double D[K + 1];
    D[0] = past;
    for (int i = 0; i < k; i++)
        rotation->a[i] = rows[i * wide];
    for (int i = 0; i < k; i++)
        rotation->gain[i] = q[i] * rotation->a[i];
    for (int i = 0; i < k; i++)
        D[i + 1] = D[i] + rotation->gain[i] * rotation->a[i];
    for (int i = 0; i < k; i++) {
        const double over = 1.0 / D[i + 1];
        rotation->retain[i] = D[i] * over;
        rotation->gain[i] *= over;
        q[i] *= rotation->retain[i];
    }
    rotation->sharp = D[0] <= MUCH * D[k]; /* if the k rows together are not sharp, no row is */
    return D[k];
}

WITHIN void apply_rotation(const double *row, double *next, double *rows, ptrdiff_t wide,
                           ptrdiff_t m, const Rotation *rotation, const int k)
{
    if (rotation->sharp)
        apply_sharp(row, next, rows, wide, m, rotation->a, rotation->gain, rotation->retain, k);
    else
        apply(row, next, rows, wide, m, rotation->a, rotation->gain, k);
}

/* Store a and k of (1). */
WITHIN void record(double *recorded, ptrdiff_t j, const Rotation *rotation, const int k)
{
    if (!recorded)
        return;
    memcpy(recorded + 2 * K * j, rotation->a, k * sizeof(double));
    memcpy(recorded + 2 * K * j + K, rotation->gain, k * sizeof(double));
}

/* Rotate the columns of a panel, and its rows up to column `stop`. Each group is one column behind
   the group before it, so that no operation depends on the one just before. */
WITHIN void rotate_columns(Panel *panel, double *q, double due, const double *diagonal,
                           double *after, double *recorded, const int k)
{
    const ptrdiff_t wide = panel->wide, from = panel->from, count = panel->to - from;
    const ptrdiff_t begin = place(wide, from), last = panel->groups - 1;
    memset(panel->sharp, 0, panel->groups * sizeof *panel->sharp);
    for (ptrdiff_t s = 0; s < count + last; s++)
        for (ptrdiff_t g = s < last ? s : last; g >= 0 && s - g < count; g--) {
            const ptrdiff_t j = from + s - g, left = edge(j), at = place(wide, j) - begin;
            const double *row = (g ? panel->next : panel->row) + at;
            double *rows = panel->block + g * k * wide, *next = panel->next + at;
            Rotation *rotation = panel->rotations[g] + j - from;
            after[j] = rotation_of(rotation, rows + j, wide, q + g * k,
                                   g ? after[j] : due * diagonal[j], k);
            record(recorded, j, rotation, k);
            apply_rotation(row, next, rows + left, wide, panel->stop - left, rotation, k);
            if (rotation->sharp)
                next[j - left] = 1.0;
            panel->sharp[g] |= rotation->sharp;
        }
}

/* `pass` for a k that is a compile-time constant. */
WITHIN void pass_of(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                    ptrdiff_t groups, double due, const double *row, const double *diagonal,
                    double *next, double *after, double *recorded, const int k)
{
    const ptrdiff_t begin = place(wide, first);
    Panel panel; /* not initialized, since it is large */
    panel.wide = wide;
    panel.block = block;
    panel.groups = groups;
    for (ptrdiff_t from = first; from < last; from += PANEL) {
        const ptrdiff_t at = place(wide, from) - begin;
        panel.from = from;
        panel.to = from + PANEL < last ? from + PANEL : last;
        panel.stop = edge(panel.to) == panel.to ? panel.to : wide;
        panel.row = row + at;
        panel.next = next + at;
        rotate_columns(&panel, q, due, diagonal, after, recorded, k);
        if (panel.stop < wide)
            rotate_strips(&panel, k);
    }
}

EVERY_MACHINE void pass(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                        ptrdiff_t groups, double due, const double *row, const double *diagonal,
                        double *next, double *after, double *recorded, int k)
{
    if (k == 1)
        pass_of(wide, first, last, block, q, groups, due, row, diagonal, next, after, recorded, 1);
    else
        pass_of(wide, first, last, block, q, groups, due, row, diagonal, next, after, recorded, K);
}
