#include "givens.h"

static const double MUCH = 0.25;    /* a row with a smaller D / D' is sharp */

/* (2) for k rows and a row of the triangle with m numbers. Left of its diagonal, which is 1, the
   triangle is 0, and after their columns were added the rows are 0 there too: these zeros remain.
   */
WITHIN void take(const double *row, double *next, double *rows, ptrdiff_t wide, ptrdiff_t m,
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
WITHIN void take_sharp(const double *row, double *next, double *rows, ptrdiff_t wide, ptrdiff_t m,
                       const double *a, const double *gain, const double *kept, const int k)
{
    for (ptrdiff_t l = 0; l < m; l += WIDE) {
        vector u = *(const vector *)(row + l);
        for (int i = 0; i < k; i++) {
            vector *at = (vector *)(rows + i * wide + l);
            const vector x = *at;
            *at = x - a[i] * u;
            u = kept[i] * u + gain[i] * x;
        }
        *(vector *)(next + l) = u;
    }
}

/* (1) for k rows and a column; returns D after these rows. */
WITHIN double turn_of(Turn *turn, const double *rows, ptrdiff_t wide, double *q, double known,
                      const int k)
{
    double D[K + 1];
    D[0] = known;
    for (int i = 0; i < k; i++)
        turn->a[i] = rows[i * wide];
    for (int i = 0; i < k; i++)
        turn->gain[i] = q[i] * turn->a[i];
    for (int i = 0; i < k; i++)
        D[i + 1] = D[i] + turn->gain[i] * turn->a[i];
    for (int i = 0; i < k; i++) {
        const double over = 1.0 / D[i + 1];
        turn->kept[i] = D[i] * over;
        turn->gain[i] *= over;
        q[i] *= turn->kept[i];
    }
    turn->sharp = D[0] <= MUCH * D[k]; /* if the k rows together are not sharp, no row is */
    return D[k];
}

WITHIN void take_either(const double *row, double *next, double *rows, ptrdiff_t wide, ptrdiff_t m,
                        const Turn *turn, const int k)
{
    if (turn->sharp)
        take_sharp(row, next, rows, wide, m, turn->a, turn->gain, turn->kept, k);
    else
        take(row, next, rows, wide, m, turn->a, turn->gain, k);
}

/* Store a and k of (1). */
WITHIN void note(double *noted, ptrdiff_t j, const Turn *turn, const int k)
{
    if (!noted)
        return;
    memcpy(noted + 2 * K * j, turn->a, k * sizeof(double));
    memcpy(noted + 2 * K * j + K, turn->gain, k * sizeof(double));
}

/* Rotate the columns of a panel, and its rows up to column `stop`. Each group is one column behind
   the group before it, so that no operation depends on the one just before. */
WITHIN void turn_columns(Panel *panel, double *q, double due, const double *diagonal, double *after,
                         double *noted, const int k)
{
    const ptrdiff_t wide = panel->wide, from = panel->from, count = panel->to - from;
    const ptrdiff_t begin = place(wide, from), last = panel->groups - 1;
    memset(panel->sharp, 0, panel->groups * sizeof *panel->sharp);
    for (ptrdiff_t s = 0; s < count + last; s++)
        for (ptrdiff_t g = s < last ? s : last; g >= 0 && s - g < count; g--) {
            const ptrdiff_t j = from + s - g, left = edge(j), at = place(wide, j) - begin;
            const double *row = (g ? panel->next : panel->row) + at;
            double *rows = panel->block + g * k * wide, *next = panel->next + at;
            Turn *turn = panel->turns[g] + j - from;
            after[j] = turn_of(turn, rows + j, wide, q + g * k, g ? after[j] : due * diagonal[j], k);
            note(noted, j, turn, k);
            take_either(row, next, rows + left, wide, panel->stop - left, turn, k);
            if (turn->sharp)
                next[j - left] = 1.0;
            panel->sharp[g] |= turn->sharp;
        }
}

/* `pass` for a k that is a compile-time constant. */
WITHIN void pass_of(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                    ptrdiff_t groups, double due, const double *row, const double *diagonal,
                    double *next, double *after, double *noted, const int k)
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
        turn_columns(&panel, q, due, diagonal, after, noted, k);
        if (panel.stop < wide)
            turn_strips(&panel, k);
    }
}

EVERY_MACHINE void pass(ptrdiff_t wide, ptrdiff_t first, ptrdiff_t last, double *block, double *q,
                        ptrdiff_t groups, double due, const double *row, const double *diagonal,
                        double *next, double *after, double *noted, int k)
{
    if (k == 1)
        pass_of(wide, first, last, block, q, groups, due, row, diagonal, next, after, noted, 1);
    else
        pass_of(wide, first, last, block, q, groups, due, row, diagonal, next, after, noted, K);
}
