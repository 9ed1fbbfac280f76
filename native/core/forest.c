/* Trees that grow row by row; forest.h describes the vector, onepass/learners/forest.py the
   algorithm and its sources. onepass/learners/forest_plain.py is the same in Python. */
#include "forest.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "least_squares.h"

enum {
    GRACE = 20,   /* rows of a leaf between two tests of its cuts */
    WAIT = 60,    /* rows after which a leaf no longer waits for the cuts of a feature */
    KNOWN = 64,   /* rows after which the errors of regressions are compared */
    FADES = 64,   /* rows of a leaf after which its sums fade at once */
    OF_PARENT = 30,    /* weight of the parent's rows in the sums of a child */
    INHERITED = 8, /* weight of the parent's rows in the least squares of a child */
    LEAST = 5,    /* weight of the rows on either side of a cut */
    FARTHEST = 4, /* standard deviations of the largest prediction of a leaf */
    LOGS = 8      /* factors whose logarithm is computed at once */
};
static const double RATE = 6.0;        /* mean of the Poisson weights */
static const double NONE = 0.0024787521766663585; /* exp(-RATE) */
static const double FADE = 0.999;      /* of the sums of a leaf, per row */
static const double OF_LEAF = 0.02;    /* share of a row in the errors of a leaf */
static const double OF_TREE = 0.005;   /* share of a row in the error of a tree */
static const double OF_TARGETS = 0.002; /* least share of a row in the variance of the targets */
static const double SURE = 0.01;       /* probability that a split is not the best */
static const double TIE = 0.05;        /* difference of gains that does not matter */
static const double USEFUL = 0.005;    /* least gain of a split */
static const double CHANGED = 0.001;   /* probability of a reset without a change of the errors */
static const double FLOOR = 0.02;      /* of the probabilities of naive Bayes */
static const double TINIEST = 1e-290; /* sum of squares whose inverse is used */
static const double EQUAL = 1e-9;      /* gains that differ less are equal but for rounding */
static const double SMALL = 1e-12;     /* of a variance, relative to that of all targets */

typedef struct {
    double *head, *values, *means, *squares, *importance, *centre, *variance, *base, *trees;
    ptrdiff_t d, C, c, S, K, T, leaves, of_cell, of_model, of_leaf, of_tree;
    int bayes, linear;
    /* work space: the row with means for missing values (d), inverse variances of the features
       (d), what the base predicts and leaves (c), predictions of a leaf (C + c), sums (3 S), and a
       row of least squares */
    double *full, *inverse, *own, *rest, *plain, *fitted, *sums, *row;
} Forest;

/* -- parts ------------------------------------------------------------------------------------ */

/* Write the head of an empty vector of least squares; returns its size. */
static ptrdiff_t base_head(ptrdiff_t d, ptrdiff_t c, double *head)
{
    memset(head, 0, HEAD * sizeof *head);
    head[FEATURES] = d;
    head[OUTPUTS] = c;
    head[FLAGS] = FREE;
    head[PRIOR] = 1.0;
    head[ATTEMPT] = 2.0 * d;
    return ls_size(head);
}

static Forest forest_of(double *vector)
{
    double ls[HEAD];
    const double *h = vector;
    Forest f = {.head = vector,
                .d = (ptrdiff_t)h[FOREST_FEATURES],
                .C = (ptrdiff_t)h[FOREST_CLASSES],
                .c = (ptrdiff_t)h[FOREST_OUTPUTS],
                .T = (ptrdiff_t)h[FOREST_TREES],
                .K = (ptrdiff_t)h[FOREST_DRAWN],
                .leaves = (ptrdiff_t)h[FOREST_LEAVES],
                .bayes = h[FOREST_BAYES] != 0.0,
                .linear = h[FOREST_LINEAR] != 0.0};
    const ptrdiff_t least = f.c ? base_head(f.d, f.c, ls) : 0;
    f.S = f.c ? 1 + 2 * f.c : f.C;
    f.of_cell = 2 + CUTS + BINS * f.S;
    f.of_model = f.bayes ? 3 * f.C * f.d : f.linear ? least : 0;
    f.of_leaf = LEAF_HEAD + f.S + f.K * f.of_cell + f.of_model;
    f.of_tree = TREE_HEAD + BLOCKS + (2 * f.leaves - 1) * NODE + f.leaves * f.of_leaf;
    f.values = vector + FOREST_HEAD;
    f.means = f.values + f.d;
    f.squares = f.means + f.d;
    f.importance = f.squares + f.d;
    f.centre = f.importance + f.d;
    f.variance = f.centre + f.c;
    f.base = f.variance + f.c;
    f.trees = f.base + least;
    return f;
}

ptrdiff_t forest_size(const double *head)
{
    const double most = 1e9; /* numbers, so that no product overflows */
    const double d = head[FOREST_FEATURES], C = head[FOREST_CLASSES], c = head[FOREST_OUTPUTS];
    const double K = head[FOREST_DRAWN], T = head[FOREST_TREES], leaves = head[FOREST_LEAVES];
    for (int i = 0; i <= FOREST_ROWS; i++)
        if (!(head[i] >= 0.0 && head[i] <= 1e15 && head[i] == floor(head[i])))
            return 0;
    const int bayes = head[FOREST_BAYES] != 0.0, linear = head[FOREST_LINEAR] != 0.0;
    const double least = d + c + 32.0; /* no less than a row of least squares */
    const double model = bayes ? 3.0 * C * d : linear ? least * least + 16.0 * least : 0.0;
    const double of_leaf = 16.0 + (BINS + 2.0) * (K + 1.0) * (C + 2.0 * c + 2.0) + model;
    if ((C > 0.0 && c > 0.0) || (bayes && c > 0.0) || (linear && c == 0.0) || T < 1.0 ||
        leaves < 1.0 || leaves > head[FOREST_LIMIT] || K > d || (d > 0.0 && K < 1.0) || leaves * of_leaf * T > most ||
        (c > 0.0 && least * least > most))
        return 0;
    const Forest f = forest_of((double *)head);
    return f.trees - f.head + f.T * f.of_tree;
}

static double *tree_of(const Forest *f, ptrdiff_t t)
{
    return f->trees + t * f->of_tree;
}

static double *node_of(double *tree, ptrdiff_t i)
{
    return tree + TREE_HEAD + BLOCKS + i * NODE;
}

static double *leaf_of(const Forest *f, double *tree, ptrdiff_t i)
{
    return node_of(tree, 2 * f->leaves - 1) + i * f->of_leaf;
}

static double *sums_of(double *leaf)
{
    return leaf + LEAF_HEAD;
}

static double *cell_of(const Forest *f, double *leaf, ptrdiff_t k)
{
    return leaf + LEAF_HEAD + f->S + k * f->of_cell;
}

static double *model_of(const Forest *f, double *leaf)
{
    return cell_of(f, leaf, f->K);
}

/* The node of the leaf that a row reaches. */
static double *reach(double *tree, const double *x)
{
    double *node = node_of(tree, 0);
    while (node[FEATURE] >= 0.0) {
        const double value = x[(ptrdiff_t)node[FEATURE]];
        const double right = isnan(value) ? node[MISSING] : value > node[CUT];
        node = node_of(tree, (ptrdiff_t)(node[CHILD] + right));
    }
    return node;
}

/* -- random numbers --------------------------------------------------------------------------- */

/* A number in [0, 1): the hash of the seed, the tree and the number of draws before. */
static double drawn(const Forest *f, ptrdiff_t t)
{
    double *draws = tree_of(f, t) + TREE_DRAWS;
    uint64_t z = (uint64_t)f->head[FOREST_SEED] * 0x9E3779B97F4A7C15u +
                 (uint64_t)(t + 1) * 0xBF58476D1CE4E5B9u + (uint64_t)*draws * 0x94D049BB133111EBu;
    *draws += 1.0;
    for (int i = 0; i < 2; i++) {
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
        z = (z ^ z >> 27) * 0x94D049BB133111EBu;
        z ^= z >> 31;
    }
    return (double)(z >> 11) * 0x1p-53;
}

/* A Poisson number, by inversion. */
static double poisson(double u)
{
    double k = 0.0, p = NONE;
    for (; u >= p && k < 40.0; p *= RATE / k) {
        u -= p;
        k += 1.0;
    }
    return k;
}

/* Let a cell test a feature that no other cell of its leaf tests. */
static void draw_feature(const Forest *f, ptrdiff_t t, double *leaf, ptrdiff_t k)
{
    double *cell = cell_of(f, leaf, k);
    ptrdiff_t other;
    memset(cell, 0, f->of_cell * sizeof *cell);
    if (f->K == f->d) {
        *cell = k;
        return;
    }
    *cell = -1.0;
    do {
        const double feature = floor(drawn(f, t) * f->d);
        for (other = 0; other < f->K && *cell_of(f, leaf, other) != feature; other++)
            ;
        *cell = other == f->K ? feature : -1.0;
    } while (*cell < 0.0);
}

/* -- starting --------------------------------------------------------------------------------- */

/* Empty a leaf whose cells have no features yet. */
static void start_leaf(const Forest *f, double *leaf)
{
    memset(leaf, 0, f->of_leaf * sizeof *leaf);
    leaf[LEAF_PLAIN] = leaf[LEAF_FITTED] = f->C ? 0.5 : 1.0;
    for (ptrdiff_t k = 0; k < f->K; k++)
        *cell_of(f, leaf, k) = -1.0;
    if (f->linear) {
        base_head(f->d, f->c, model_of(f, leaf));
        model_of(f, leaf)[FACTOR] = log2(FADE);
    }
}

/* Make a tree a single leaf. */
static void start_tree(const Forest *f, ptrdiff_t t)
{
    double *tree = tree_of(f, t), *root = node_of(tree, 0);
    tree[TREE_LEAVES] = 1.0;
    tree[TREE_SUM] = tree[TREE_COUNT] = tree[TREE_BLOCKS] = 0.0;
    root[FEATURE] = -1.0;
    root[CHILD] = 0.0;
    start_leaf(f, leaf_of(f, tree, 0));
}

void forest_start(double *vector)
{
    const Forest f = forest_of(vector);
    if (f.c)
        base_head(f.d, f.c, f.base);
    for (ptrdiff_t t = 0; t < f.T; t++) {
        start_tree(&f, t);
        tree_of(&f, t)[TREE_ERROR] = 0.5;
    }
}

/* -- predictions of leaves -------------------------------------------------------------------- */

/* Write the shares of the classes in a leaf. */
static void shares_of(const Forest *f, const double *sums, double *shares)
{
    double all = 1.0;
    for (ptrdiff_t k = 0; k < f->C; k++)
        all += sums[k];
    for (ptrdiff_t k = 0; k < f->C; k++)
        shares[k] = (sums[k] + 1.0 / f->C) / all;
}

/* Replace the shares of the classes by the probabilities of naive Bayes. The variance of a feature
   in a class includes one row of the variance of all rows, by whose inverse it is multiplied. */
static void bayes(const Forest *f, const double *x, const double *model, double *p)
{
    const double *inverse = f->inverse;
    double top = -INFINITY, all = 0.0;
    for (ptrdiff_t k = 0; k < f->C; k++) {
        double log_p = log(p[k]), sum = 0.0, product = 1.0;
        const double *m = model + k * 3 * f->d;
        for (ptrdiff_t j = 0; j < f->d; j++) {
            if (m[3 * j] > 1.0 && !isnan(x[j]) && inverse[j] > 0.0) {
                const double by = x[j] - m[3 * j + 1];
                const double over = (m[3 * j] + 1.0) / (m[3 * j + 2] * inverse[j] + 1.0);
                sum += by * by * inverse[j] * over;
                product *= over;
            }
            if (j % LOGS == LOGS - 1 || j == f->d - 1) {
                log_p += 0.5 * log(product);
                product = 1.0;
            }
        }
        p[k] = log_p - 0.5 * fmin(sum, 1e300);
        top = p[k] > top ? p[k] : top;
    }
    for (ptrdiff_t k = 0; k < f->C; k++)
        all += p[k] = exp(p[k] - top) + FLOOR;
    for (ptrdiff_t k = 0; k < f->C; k++)
        p[k] /= all;
}

/* The last of the largest numbers. */
static ptrdiff_t best(const double *p, ptrdiff_t n)
{
    ptrdiff_t found = 0;
    for (ptrdiff_t k = 1; k < n; k++)
        found = p[k] >= p[found] ? k : found;
    return found;
}

/* The mean of output k in a leaf. */
static double mean_of(const Forest *f, const double *sums, ptrdiff_t k)
{
    return sums[0] > 0.0 ? sums[1 + k] / sums[0] : f->centre[k];
}

/* A prediction of least squares, not too far from the mean of all targets. */
static double limited(const Forest *f, double prediction, ptrdiff_t k)
{
    const double far = FARTHEST * sqrt(f->variance[k]), by = prediction - f->centre[k];
    return f->centre[k] + fmin(fmax(by, -far), far);
}

/* -- growing ---------------------------------------------------------------------------------- */

/* The impurity of sums: the entropy in bits, or the variance of output k; *weight is their weight. */
static double impurity(const Forest *f, const double *sums, ptrdiff_t k, double *weight)
{
    double all = 0.0, found = 0.0;
    for (ptrdiff_t i = 0; i < (f->c ? 1 : f->C); i++)
        all += sums[i];
    *weight = all;
    if (!(all > 0.0))
        return 0.0;
    if (f->c) {
        const double mean = sums[1 + k] / all;
        return fmax(sums[1 + f->c + k] / all - mean * mean, 0.0);
    }
    for (ptrdiff_t i = 0; i < f->C; i++)
        if (sums[i] > 0.0)
            found -= sums[i] / all * log2(sums[i] / all);
    return found;
}

/* The share of the impurity that is removed by dividing sums into two parts, as a mean over the
   outputs; -1 if a part has too few rows. */
static double gain_of(const Forest *f, const double *left, const double *right, const double *both)
{
    double gain = 0.0, of_left, of_right, all;
    for (ptrdiff_t k = 0; k < (f->c ? f->c : 1); k++) {
        const double one = impurity(f, left, k, &of_left), two = impurity(f, right, k, &of_right);
        const double before = impurity(f, both, k, &all);
        if (of_left < LEAST || of_right < LEAST)
            return -1.0;
        if (before > (f->c ? SMALL * f->variance[k] : SMALL))
            gain += 1.0 - (of_left * one + of_right * two) / (all * before);
    }
    return f->c ? gain / f->c : gain;
}

typedef struct {
    double gain;
    int cut, missing; /* the cut, and whether missing values are to its right */
} Split;

/* The best split by a cell. */
static Split best_split(const Forest *f, const double *cell)
{
    const ptrdiff_t S = f->S;
    const double *bins = cell + 2 + CUTS, *absent = bins + (BINS - 1) * S;
    double *left = f->sums, *right = left + S, *both = right + S, some = 0.0;
    Split found = {-1.0, 0, 0};
    memset(both, 0, S * sizeof *both);
    for (ptrdiff_t i = 0; i < BINS * S; i++)
        both[i % S] += bins[i];
    for (ptrdiff_t i = 0; i < (f->c ? 1 : f->C); i++)
        some += absent[i];
    for (int missing = 0; missing < (some > 0.0 ? 2 : 1); missing++)
        for (int cut = 0; cut < (int)cell[1] + missing; cut++) { /* the last one is above all values */
            for (ptrdiff_t i = 0; i < S; i++) {
                left[i] = missing ? 0.0 : absent[i];
                for (int b = 0; b <= cut; b++)
                    left[i] += bins[b * S + i];
                right[i] = both[i] - left[i];
            }
            const double gain = gain_of(f, left, right, both);
            if (gain > found.gain + EQUAL)
                found = (Split){gain, cut, missing};
        }
    return found;
}

/* Scale sums to a smaller weight. */
static void shrink(const Forest *f, double *sums, double most)
{
    double all = 0.0;
    for (ptrdiff_t i = 0; i < (f->c ? 1 : f->C); i++)
        all += sums[i];
    for (ptrdiff_t i = 0; i < f->S && all > most; i++)
        sums[i] *= most / all;
}

/* Scale the weights of naive Bayes to a smaller sum, of the largest feature. */
static void shrink_model(const Forest *f, double *model, double most)
{
    double largest = 0.0;
    for (ptrdiff_t j = 0; j < f->d; j++) {
        double all = 0.0;
        for (ptrdiff_t k = 0; k < f->C; k++)
            all += model[3 * (k * f->d + j)];
        largest = fmax(largest, all);
    }
    for (ptrdiff_t i = 0; i < f->C * f->d && largest > most; i++) {
        model[3 * i] *= most / largest;
        model[3 * i + 2] *= most / largest;
    }
}

/* Divide the leaf of a node by a cell. Both children keep what the leaf has learned. */
static void divide(const Forest *f, ptrdiff_t t, double *node, const double *cell, Split split)
{
    double *tree = tree_of(f, t), *leaf = leaf_of(f, tree, (ptrdiff_t)node[CHILD]);
    double *twin = leaf_of(f, tree, (ptrdiff_t)tree[TREE_LEAVES]);
    const double cut = split.cut < (int)cell[1] ? cell[2 + split.cut] : FOREST_LARGEST;
    const double at[] = {cell[0], cut, split.missing, 2.0 * tree[TREE_LEAVES] - 1.0};
    double *sums = f->sums, *left = node_of(tree, (ptrdiff_t)at[3]);
    const double *bins = cell + 2 + CUTS;
    const ptrdiff_t S = f->S;
    for (ptrdiff_t i = 0; i < S; i++) {
        sums[i] = sums[S + i] = 0.0;
        for (int b = 0; b < BINS; b++)
            sums[(b == BINS - 1 ? split.missing : b > split.cut) * S + i] += bins[b * S + i];
    }
    for (int side = 0; side < 2; side++) {
        double *child = left + side * NODE;
        child[FEATURE] = -1.0;
        child[CHILD] = side ? tree[TREE_LEAVES] : node[CHILD];
        shrink(f, sums + side * S, OF_PARENT);
    }
    if (f->bayes)
        shrink_model(f, model_of(f, leaf), OF_PARENT);
    leaf[LEAF_ROWS] = 0.0;
    if (f->C)
        leaf[LEAF_PLAIN] = leaf[LEAF_FITTED] = 0.5;
    for (ptrdiff_t k = 0; k < f->K; k++)
        *cell_of(f, leaf, k) = -1.0;
    memcpy(twin, leaf, f->of_leaf * sizeof *leaf);
    memcpy(sums_of(leaf), sums, S * sizeof *sums);
    memcpy(sums_of(twin), sums + S, S * sizeof *sums);
    memcpy(node, at, sizeof at);
    tree[TREE_LEAVES] += 1.0;
}

/* Divide the leaf of a node if one of its cuts is clearly the best. */
static void try_split(const Forest *f, ptrdiff_t t, double *node)
{
    double *tree = tree_of(f, t), *leaf = leaf_of(f, tree, (ptrdiff_t)node[CHILD]);
    double second = 0.0, weight = 0.0;
    ptrdiff_t chosen = -1;
    int known = 1; /* whether all features have their cuts */
    Split first = {-1.0, 0, 0};
    if (tree[TREE_LEAVES] == f->head[FOREST_LIMIT])
        return;
    for (ptrdiff_t k = 0; k < f->K; k++) {
        const double *cell = cell_of(f, leaf, k);
        const Split split = best_split(f, cell);
        if (split.gain > first.gain + EQUAL) {
            second = fmax(second, first.gain);
            first = split;
            chosen = k;
        } else {
            second = fmax(second, split.gain);
        }
        const int full = cell[1] == CUTS;
        known = known && full;
        if (split.gain <= 0.0 && (full || (f->K < f->d && leaf[LEAF_ROWS] >= WAIT)))
            draw_feature(f, t, leaf, k);
    }
    if (!(first.gain > USEFUL) || !(known || leaf[LEAF_ROWS] >= WAIT))
        return;
    const double *cell = cell_of(f, leaf, chosen), *bins = cell + 2 + CUTS;
    for (ptrdiff_t i = 0; i < BINS * f->S; i++)
        weight += !f->c || i % f->S == 0 ? bins[i] : 0.0;
    const double bound = sqrt(-log(SURE) / (2.0 * weight));
    if (first.gain - second > bound || bound < TIE) {
            f->importance[(ptrdiff_t)cell[0]] += weight * first.gain;
        divide(f, t, node, cell, first);
    }
}

/* -- learning --------------------------------------------------------------------------------- */

/* Add a row to sums: the class, or the targets, of a row of this weight. */
static void add(const Forest *f, double *sums, const double *y, double weight)
{
    if (f->C) {
        sums[(ptrdiff_t)*y] += weight;
        return;
    }
    sums[0] += weight;
    for (ptrdiff_t k = 0; k < f->c; k++) {
        sums[1 + k] += weight * y[k];
        sums[1 + f->c + k] += weight * y[k] * y[k];
    }
}

/* Add a row to a cell. The first values become the cuts, and are not counted. */
static void add_to_cell(const Forest *f, double *cell, const double *x, const double *y,
                        double weight)
{
    const double value = x[(ptrdiff_t)cell[0]];
    double *cuts = cell + 2;
    int bin = 0, have = (int)cell[1];
    if (isnan(value)) {
        add(f, cuts + CUTS + (BINS - 1) * f->S, y, weight);
        return;
    }
    for (int i = 0; i < have; i++)
        bin += value > cuts[i];
    if (have == CUTS) {
        add(f, cuts + CUTS + bin * f->S, y, weight);
        return;
    }
    for (int i = have; i > bin; i--)
        cuts[i] = cuts[i - 1];
    cuts[bin] = value;
    cell[1] += 1.0;
}

/* Add a row of class y to naive Bayes. */
static void add_to_model(const Forest *f, double *model, const double *x, ptrdiff_t y,
                         double weight)
{
    for (ptrdiff_t j = 0; j < f->d; j++) {
        double *m = model + 3 * (y * f->d + j);
        if (isnan(x[j]))
            continue;
        const double by = x[j] - m[1];
        m[0] += weight;
        m[1] += weight / m[0] * by;
        m[2] += weight * by * (x[j] - m[1]);
    }
}

/* Let the sums of a leaf fade. */
static void fade_leaf(const Forest *f, double *leaf)
{
    const double by = pow(FADE, FADES);
    for (ptrdiff_t i = 0; i < f->S; i++)
        sums_of(leaf)[i] *= by;
    for (ptrdiff_t i = 0; f->bayes && i < f->C * f->d; i++) {
        model_of(f, leaf)[3 * i] *= by;
        model_of(f, leaf)[3 * i + 2] *= by;
    }
}

/* Learn a row in the leaf of a node, all but its least squares. */
static void add_to_leaf(const Forest *f, ptrdiff_t t, double *node, const double *x,
                        const double *y, double weight)
{
    double *leaf = leaf_of(f, tree_of(f, t), (ptrdiff_t)node[CHILD]);
    leaf[LEAF_ROWS] += 1.0;
    if (fmod(leaf[LEAF_ROWS], FADES) == 0.0)
        fade_leaf(f, leaf);
    add(f, sums_of(leaf), y, weight);
    if (f->bayes)
        add_to_model(f, model_of(f, leaf), x, (ptrdiff_t)*y, weight);
    for (ptrdiff_t k = 0; k < f->K; k++) {
        if (*cell_of(f, leaf, k) < 0.0)
            draw_feature(f, t, leaf, k);
        add_to_cell(f, cell_of(f, leaf, k), x, y, weight);
    }
    if (fmod(leaf[LEAF_ROWS], GRACE) == 0.0)
        try_split(f, t, node);
}

/* Add an error of a tree; returns whether the errors have become larger, by Bernstein's bound for
   the difference of the means before and after each block. */
static int has_changed(const Forest *f, double *tree, double error)
{
    double *blocks = tree + TREE_HEAD, all = 0.0, before = 0.0;
    tree[TREE_ERROR] += OF_TREE * (error - tree[TREE_ERROR]);
    tree[TREE_SUM] += error;
    if ((tree[TREE_COUNT] += 1.0) < BLOCK_ROWS)
        return 0;
    if (tree[TREE_BLOCKS] == BLOCKS) {
        memmove(blocks, blocks + 1, (BLOCKS - 1) * sizeof *blocks);
        tree[TREE_BLOCKS] -= 1.0;
    }
    const int n = (int)tree[TREE_BLOCKS] + 1;
    blocks[n - 1] = tree[TREE_SUM];
    tree[TREE_BLOCKS] = n;
    tree[TREE_SUM] = tree[TREE_COUNT] = 0.0;
    for (int i = 0; i < n; i++)
        all += blocks[i];
    const double mean = all / (n * BLOCK_ROWS), likely = log(2.0 * n / CHANGED);
    const double spread = f->C ? fmax(mean * (1.0 - mean), 1e-4) : fmax(mean * mean, 1e-6);
    for (int i = 1; i < n; i++) {
        before += blocks[i - 1];
        const double past = i * BLOCK_ROWS, since = (n - i) * BLOCK_ROWS;
        const double rows = 1.0 / (1.0 / past + 1.0 / since);
        const double bound =
            sqrt(2.0 / rows * spread * likely) + 2.0 / (3.0 * rows) * likely;
        if ((all - before) / since - before / past > bound)
            return 1;
    }
    return 0;
}

/* Add the vote of a tree to the probabilities; with y, also learn. Returns its weight. */
static double vote_of_classes(const Forest *f, ptrdiff_t t, const double *x, const double *y,
                              double weight, double *found)
{
    double *tree = tree_of(f, t), *node = reach(tree, x);
    double *leaf = leaf_of(f, tree, (ptrdiff_t)node[CHILD]);
    double *shares = f->plain, *fitted = f->fitted, *used = shares;
    const double good = 1.0 - tree[TREE_ERROR], vote = good * good * good + 1e-3;
    shares_of(f, sums_of(leaf), shares);
    if (f->bayes) {
        memcpy(fitted, shares, f->C * sizeof *fitted);
        bayes(f, x, model_of(f, leaf), fitted);
        used = leaf[LEAF_FITTED] < leaf[LEAF_PLAIN] ? fitted : shares;
    }
    for (ptrdiff_t k = 0; k < f->C; k++)
        found[k] += vote * used[k];
    if (!y)
        return vote;
    const ptrdiff_t label = (ptrdiff_t)*y;
    const double error = best(used, f->C) != label;
    if (f->bayes) {
        leaf[LEAF_PLAIN] += OF_LEAF * ((best(shares, f->C) != label) - leaf[LEAF_PLAIN]);
        leaf[LEAF_FITTED] += OF_LEAF * ((best(fitted, f->C) != label) - leaf[LEAF_FITTED]);
    }
    weight *= poisson(drawn(f, t));
    if (weight > 0.0)
        add_to_leaf(f, t, node, x, y, weight);
    if (has_changed(f, tree, error))
        start_tree(f, t);
    return vote;
}

/* The fade, in log2, that leaves this weight of the rows of least squares. */
static double fade_to(const double *vector, double weight)
{
    return vector[MASS] > weight ? log2(weight / vector[MASS]) : 0.0;
}

/* The same for what the base leaves of the targets. */
static double vote_of_targets(const Forest *f, ptrdiff_t t, const double *x, const double *y,
                              double weight, double *found)
{
    double *tree = tree_of(f, t), *node = reach(tree, x);
    double *leaf = leaf_of(f, tree, (ptrdiff_t)node[CHILD]), *sums = sums_of(leaf);
    double *plain = f->plain, *fitted = f->fitted, *used = plain;
    const double vote = 1.0 / (tree[TREE_ERROR] + 1e-9);
    double error = 0.0;
    weight *= y ? poisson(drawn(f, t)) : 0.0;
    for (ptrdiff_t k = 0; k < f->c; k++)
        plain[k] = mean_of(f, sums, k);
    if (f->linear) {
        double *model = model_of(f, leaf);
        const double mass = model[MASS];
        const double past = leaf[LEAF_ROWS] == 0.0 ? fade_to(model, INHERITED) : model[FACTOR];
        if (weight > 0.0) {
            ls_learn_rows(model, 1, f->full, y, &weight, &past, fitted);
            for (ptrdiff_t k = 0; k < f->c; k++)
                fitted[k] = y[k] - fitted[k];
        } else {
            const LeastSquares s = ls_of(model);
            ls_eliminate(&s, f->full, fitted, f->row);
        }
        for (ptrdiff_t k = 0; k < f->c; k++)
            fitted[k] = limited(f, mass > 0.0 ? fitted[k] : plain[k], k);
        used = leaf[LEAF_FITTED] < leaf[LEAF_PLAIN] ? fitted : plain;
    }
    for (ptrdiff_t k = 0; k < f->c; k++)
        found[k] += vote * used[k];
    if (!y)
        return vote;
    for (ptrdiff_t k = 0; k < f->c; k++) {
        const double variance = f->variance[k], by = plain[k] - y[k], away = fitted[k] - y[k];
        error += fmin(fabs(used[k] - y[k]) / (FARTHEST * sqrt(variance) + 1e-300), 1.0) / f->c;
        if (f->linear && f->head[FOREST_ROWS] >= KNOWN && variance > 0.0) {
            leaf[LEAF_PLAIN] += OF_LEAF / f->c * (by * by / variance - leaf[LEAF_PLAIN]);
            leaf[LEAF_FITTED] += OF_LEAF / f->c * (away * away / variance - leaf[LEAF_FITTED]);
        }
    }
    if (weight > 0.0)
        add_to_leaf(f, t, node, x, y, weight);
    if (has_changed(f, tree, error))
        start_tree(f, t);
    return vote;
}

/* Before the first value of a feature, the least squares of all rows so far had 0 in its place: put
   this value there instead, so that the level of a feature does not matter. */
static void place_first_value(const Forest *f, ptrdiff_t j, double value)
{
    ls_of(f->base).means[j] += value;
    for (ptrdiff_t t = 0; f->linear && t < f->T; t++) {
        double *tree = tree_of(f, t);
        for (ptrdiff_t i = 0; i < (ptrdiff_t)tree[TREE_LEAVES]; i++)
            ls_of(model_of(f, leaf_of(f, tree, i))).means[j] += value;
    }
}

/* Write what the base predicts; with y, learn, and write what it leaves. If a feature has `begun`
   with this row, earlier rows, in which it was constant, keep little weight. */
static void process_base(const Forest *f, const double *y, double weight, int begun)
{
    const int first = f->base[MASS] == 0.0;
    if (y) {
        const double past = begun ? fade_to(f->base, OF_PARENT) : 0.0;
        ls_learn_rows(f->base, 1, f->full, y, &weight, &past, f->rest);
        for (ptrdiff_t k = 0; k < f->c; k++)
            f->own[k] = y[k] - f->rest[k];
    } else {
        const LeastSquares s = ls_of(f->base);
        ls_eliminate(&s, f->full, f->own, f->row);
    }
    if (first) /* it predicts the first row by itself */
        memset(f->own, 0, 2 * f->c * sizeof *f->own);
}

/* Update the means and variances of the features, and of what the base leaves. */
static void update_units(const Forest *f, const double *x)
{
    const double share = fmax(1.0 / (f->head[FOREST_ROWS] += 1.0), OF_TARGETS);
    for (ptrdiff_t k = 0; k < f->c; k++) {
        const double by = f->rest[k] - f->centre[k];
        f->centre[k] += share * by;
        f->variance[k] += share * (by * (f->rest[k] - f->centre[k]) - f->variance[k]);
    }
    for (ptrdiff_t j = 0; j < f->d; j++) {
        const double by = x[j] - f->means[j];
        if (isnan(by))
            continue;
        f->values[j] += 1.0;
        f->means[j] += by / f->values[j];
        f->squares[j] += by * (x[j] - f->means[j]);
    }
}

/* Predict a row and, with y, learn it. */
static void process(const Forest *f, const double *x, const double *y, double weight, double *found)
{
    double all = 0.0;
    int begun = 0;
    memset(found, 0, (f->C + f->c) * sizeof *found);
    for (ptrdiff_t j = 0; j < f->d; j++) {
        const int first = f->values[j] == 0.0 && f->head[FOREST_ROWS] > 0.0;
        if (first && f->c && y && !isnan(x[j])) {
            place_first_value(f, j, x[j]);
            begun = 1;
        }
        f->full[j] = isnan(x[j]) || (first && !y) ? f->means[j] : x[j];
        f->inverse[j] = f->squares[j] > TINIEST ? f->values[j] / f->squares[j] : 0.0;
    }
    if (f->c)
        process_base(f, y, weight, begun);
    for (ptrdiff_t t = 0; t < f->T; t++)
        all += f->c ? vote_of_targets(f, t, x, y ? f->rest : NULL, weight, found)
                    : vote_of_classes(f, t, x, y, weight, found);
    for (ptrdiff_t k = 0; k < f->C + f->c; k++)
        found[k] = found[k] / all + (f->c ? f->own[k] : 0.0);
    if (y)
        update_units(f, x);
}

/* Whether a row can be learned without more room. */
static int has_room(const Forest *f, const double *y)
{
    for (ptrdiff_t t = 0; t < f->T; t++)
        if (tree_of(f, t)[TREE_LEAVES] == f->leaves && f->leaves < f->head[FOREST_LIMIT])
            return 0;
    return f->c || *y < f->C;
}

/* Work space, to be freed by the caller; NULL on failure. */
static double *room_of(Forest *f)
{
    const ptrdiff_t d = f->d, outputs = f->C + f->c, row = d + f->c + 16;
    double *room = malloc((2 * d + 2 * f->c + 2 * outputs + 3 * f->S + row) * sizeof *room);
    f->full = room;
    f->inverse = f->full + d;
    f->own = f->inverse + d;
    f->rest = f->own + f->c;
    f->plain = f->rest + f->c;
    f->fitted = f->plain + outputs;
    f->sums = f->fitted + outputs;
    f->row = f->sums + 3 * f->S;
    return room;
}

/* Whether all of n numbers that are not missing are small enough to be squared and summed. */
static int are_small(const double *numbers, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        if (fabs(numbers[i]) > FOREST_LARGEST)
            return 0;
    return 1;
}

ptrdiff_t forest_learn(double *vector, ptrdiff_t n, const double *X, const double *Y,
                       const double *weights, double *found)
{
    Forest f = forest_of(vector);
    const ptrdiff_t targets = f.c ? f.c : 1;
    if (!are_small(X, n * f.d) || !are_small(Y, n * targets) || !are_small(weights, n))
        return -2;
    double *room = room_of(&f);
    ptrdiff_t i = 0;
    for (; room && i < n && has_room(&f, Y + i * targets); i++)
        process(&f, X + i * f.d, Y + i * targets, weights[i], found + i * (f.C + f.c));
    free(room);
    return room ? i : -1;
}

int forest_predict(double *vector, ptrdiff_t n, const double *X, double *found)
{
    Forest f = forest_of(vector);
    double *room = room_of(&f);
    for (ptrdiff_t i = 0; room && i < n; i++)
        process(&f, X + i * f.d, NULL, 0.0, found + i * (f.C + f.c));
    free(room);
    return room != NULL;
}
