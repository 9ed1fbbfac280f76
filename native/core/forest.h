/* A forest of trees that grow row by row. All functions are stateless; the state is one vector of
   doubles, which onepass/learners/forest_vector.py divides into the same parts.

   The vector begins with a head of numbers, for d features and C classes, or c outputs of a
   regression (C = 0). The parts after it are, in this order:

   features (4, d)     of each feature: number of values, mean, sum of squared deviations from it,
                       and the importance: the sum of gains of its splits
   targets (2, c)      of a regression: the faded mean and variance of what the base leaves
   base                of a regression: the vector of least squares of all rows
   trees (T)           one after the other

   A tree is a head, the sums of its errors in BLOCKS blocks of rows, its nodes (2 LEAVES - 1, 4),
   and its leaves (LEAVES). A node has a FEATURE, or -1 in a leaf; a CUT: a larger value goes right;
   MISSING: whether a missing value goes right; and CHILD: its left child, before the right one, or
   the leaf. A leaf is a head, sums of its rows (S), cells (K), and of

   classes, with BAYES:       weight, mean and sum of squares of each feature (C, d, 3)
   a regression, with LINEAR: the vector of least squares of its rows

   The sums of rows are the weights of the classes, or the weight, and the sums and sums of squares
   of the targets, each less what the base predicts (1 + 2 c). A cell is a feature, the number of its
   cuts, the cuts (8), and the sums (S) of the rows between the cuts, and of those in which the
   feature is missing (10). */
#ifndef ONEPASS_FOREST_H
#define ONEPASS_FOREST_H

#include <stddef.h>

enum { /* the numbers of the head */
    FOREST_FEATURES, /* d */
    FOREST_CLASSES,  /* C; 0 in a regression */
    FOREST_OUTPUTS,  /* c; 0 with classes */
    FOREST_TREES,    /* T */
    FOREST_SEED,     /* of the random numbers */
    FOREST_DRAWN,    /* K, the number of features that a leaf tests */
    FOREST_BAYES,    /* whether leaves of classes have naive Bayes */
    FOREST_LINEAR,   /* whether leaves of a regression have least squares */
    FOREST_LEAVES,   /* room for leaves in each tree */
    FOREST_LIMIT,    /* maximum number of leaves of a tree */
    FOREST_ROWS,     /* number of rows learned */
    FOREST_HEAD = 16
};
enum { /* the numbers of a tree */
    TREE_LEAVES, /* number of leaves; there are 2 TREE_LEAVES - 1 nodes */
    TREE_DRAWS,  /* number of random numbers drawn */
    TREE_ERROR,  /* faded mean of its errors, each in [0, 1] */
    TREE_SUM,    /* sum of the errors in the present block */
    TREE_COUNT,  /* number of rows in the present block */
    TREE_BLOCKS, /* number of complete blocks */
    TREE_HEAD = 8
};
enum { FEATURE, CUT, MISSING, CHILD, NODE }; /* the numbers of a node */
enum { /* the numbers of a leaf */
    LEAF_ROWS,   /* number of rows since the split */
    LEAF_PLAIN,  /* faded mean error of shares or means */
    LEAF_FITTED, /* faded mean error of naive Bayes or least squares */
    LEAF_HEAD = 4
};
#define FOREST_LARGEST 1e100
enum { BLOCKS = 64, BLOCK_ROWS = 32, CUTS = 8, BINS = CUTS + 2 };

/* The size of the vector with this head; 0 if the head is invalid. */
ptrdiff_t forest_size(const double *head);
/* Make each tree a single leaf, in a vector that is 0 after the head. */
void forest_start(double *vector);
/* Learn rows X (n, d) with weights (n), one after the other; Y (n) are indices of classes, or the
   targets (n, c). A feature may be NaN. `found` is what was predicted just before: probabilities
   (n, C), or (n, c). Returns the number of rows learned, which is less than n if the next row needs
   room for another class or leaf; -1 without memory. No row is learned if a number is larger than
   FOREST_LARGEST, whose squares can be summed: it returns -2. */
ptrdiff_t forest_learn(double *vector, ptrdiff_t n, const double *X, const double *Y,
                       const double *weights, double *found);
/* Predict rows; returns 0 without memory. */
int forest_predict(double *vector, ptrdiff_t n, const double *X, double *found);

#endif
