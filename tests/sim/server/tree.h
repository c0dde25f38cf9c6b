/* SPDX-License-Identifier: Apache-2.0 */
/* tree.h - an ordered set of byte strings, and of ranges of them: a treap whose nodes lie in what they order.
 *
 * A node is a range [begin, end). Those that order single keys leave end empty, and only tree_visit() visits them. Two
 * nodes may begin alike; the one inserted first comes first.
 *
 * Source:    Aragon, Seidel: "Randomized Search Trees", FOCS'89; ranges by the largest end below each node.
 * Ownership: the caller owns nodes and bytes, which must stay where they are while the node is in a tree.
 * Units:     bytes.
 * Errors:    none.
 * Threads:   none of its own.
 */
#pragma once

#include "base/macro.h"

typedef struct Bytes {
    const uint8_t *data;
    size_t n;
} Bytes;

/* As memcmp() orders them; a beginning comes before the whole. */
int bytes_compare(Bytes a, Bytes b);

typedef struct TreeNode {
    Bytes begin, end;
    bool endless; /* end is behind all keys */
    struct TreeNode *left, *right;
    const struct TreeNode *last; /* the node at or below this one with the largest end */
    uint64_t number, priority;
} TreeNode;

typedef struct Tree {
    TreeNode *root;
    uint64_t n_inserted;
    size_t n;
} Tree;

void tree_insert(Tree *tree, TreeNode *node);
void tree_remove(Tree *tree, TreeNode *node);
/* The node that begins here; NULL: none. */
TreeNode *tree_find(const Tree *tree, Bytes begin);
TreeNode *tree_first(const Tree *tree);
/* False ends the visit. It must not change the tree. */
typedef bool (*TreeVisitor)(TreeNode *node, void *userdata);
/* Visits all that begin at or after `from` and, unless endless, before `to`; in order. */
void tree_visit(const Tree *tree, Bytes from, Bytes to, bool endless, TreeVisitor visit,
                void *userdata);
/* Visits all whose range contains the key. */
void tree_visit_around(const Tree *tree, Bytes key, TreeVisitor visit, void *userdata);
