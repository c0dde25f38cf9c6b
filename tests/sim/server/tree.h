/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - an ordered set of byte strings, and of ranges of them: a treap whose nodes are members of the ordered
 * objects.
 *
 * A node is a range [begin, end). Nodes that order single keys leave end empty, and only tree_visit() visits them. Two
 * nodes may have the same begin; the node that was inserted first comes first.
 *
 * Source:    Aragon, Seidel: "Randomized Search Trees", FOCS'89; each node also knows the largest end below it, by
 *            which ranges are found.
 * Units: bytes. Errors: none. Threads: none of its own.
 * Ownership: the caller owns nodes and bytes, which must not move while the node is in a tree.
 */
#pragma once

#include "base/macro.h"

typedef struct Bytes {
    const uint8_t *data;
    size_t n;
} Bytes;

/* Compares as memcmp() does; a prefix comes before the longer string. */
int bytes_compare(Bytes a, Bytes b);

typedef struct TreeNode {
    Bytes begin, end;
    bool endless; /* end is after all keys */
    struct TreeNode *left, *right;
    /* the node with the largest end among this node and all nodes below it */
    const struct TreeNode *last;
    uint64_t number, priority;
} TreeNode;

typedef struct Tree {
    TreeNode *root;
    uint64_t n_inserted;
    size_t n;
} Tree;

void tree_insert(Tree *tree, TreeNode *node);
void tree_remove(Tree *tree, TreeNode *node);
/* Returns the first node with this begin; NULL: there is no such node. */
TreeNode *tree_find(const Tree *tree, Bytes begin);
TreeNode *tree_first(const Tree *tree);
/* A visitor returns false to end the visit. It must not change the tree. */
typedef bool (*TreeVisitor)(TreeNode *node, void *userdata);
/* Visits, in order, all nodes that begin at or after `from` and, unless endless, before `to`. */
void tree_visit(const Tree *tree, Bytes from, Bytes to, bool endless, TreeVisitor visit,
                void *userdata);
/* Visits all nodes whose range contains the key. */
void tree_visit_around(const Tree *tree, Bytes key, TreeVisitor visit, void *userdata);
