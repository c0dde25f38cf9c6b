/* SPDX-License-Identifier: Apache-2.0 */
/* tree.c - see tree.h. Priorities are computed from the number of the insertion, so that a schedule
 * repeats exactly. */
#include "tests/sim/server/tree.h"

#include "base/number/philox.h"

#include <string.h>

int bytes_compare(Bytes a, Bytes b)
{
    size_t n = MIN(a.n, b.n);
    int order = n > 0 ? memcmp(a.data, b.data, n) : 0;
    return order != 0 ? order : a.n < b.n ? -1 : a.n > b.n;
}

static bool ends_later(const TreeNode *a, const TreeNode *b)
{
    return a->endless != b->endless ? a->endless : bytes_compare(a->end, b->end) > 0;
}

static int order(const TreeNode *a, const TreeNode *b)
{
    int r = bytes_compare(a->begin, b->begin);
    return r != 0 ? r : a->number < b->number ? -1 : a->number > b->number;
}

static void update(TreeNode *node)
{
    node->last = node;
    if (node->left && ends_later(node->left->last, node->last))
        node->last = node->left->last;
    if (node->right && ends_later(node->right->last, node->last))
        node->last = node->right->last;
}

/* Splits a tree: the nodes before `at` go to the left tree, the other nodes go to the right
 * tree. */
static void split(TreeNode *node, const TreeNode *at, TreeNode **ret_left, TreeNode **ret_right)
{
    if (!node) {
        *ret_left = *ret_right = NULL;
    } else if (order(node, at) < 0) {
        split(node->right, at, &node->right, ret_right);
        *ret_left = node;
        update(node);
    } else {
        split(node->left, at, ret_left, &node->left);
        *ret_right = node;
        update(node);
    }
}

static TreeNode *merge(TreeNode *left, TreeNode *right)
{
    if (!left || !right)
        return left ? left : right;
    if (left->priority > right->priority) {
        left->right = merge(left->right, right);
        update(left);
        return left;
    }
    right->left = merge(left, right->left);
    update(right);
    return right;
}

static TreeNode *insert(TreeNode *root, TreeNode *node)
{
    if (!root || node->priority > root->priority) {
        split(root, node, &node->left, &node->right);
        update(node);
        return node;
    }
    if (order(node, root) < 0)
        root->left = insert(root->left, node);
    else
        root->right = insert(root->right, node);
    update(root);
    return root;
}

static TreeNode *without(TreeNode *root, const TreeNode *node)
{
    assert(root); /* the node is in the tree */
    if (root == node)
        return merge(root->left, root->right);
    if (order(node, root) < 0)
        root->left = without(root->left, node);
    else
        root->right = without(root->right, node);
    update(root);
    return root;
}

void tree_insert(Tree *tree, TreeNode *node)
{
    Philox draw = philox4x32(1, 0, tree->n_inserted);

    node->number = tree->n_inserted++;
    node->priority = (uint64_t)draw.word[0] << 32 | draw.word[1];
    tree->root = insert(tree->root, node);
    tree->n++;
}

void tree_remove(Tree *tree, TreeNode *node)
{
    tree->root = without(tree->root, node);
    tree->n--;
}

TreeNode *tree_find(const Tree *tree, Bytes begin)
{
    TreeNode *node = tree->root;

    while (node) {
        int r = bytes_compare(begin, node->begin);
        if (r == 0)
            return node;
        node = r < 0 ? node->left : node->right;
    }
    return NULL;
}

TreeNode *tree_first(const Tree *tree)
{
    TreeNode *node = tree->root;

    while (node && node->left)
        node = node->left;
    return node;
}

typedef struct Visit {
    Bytes from, to;
    bool endless;
    TreeVisitor visit;
    void *userdata;
} Visit;

static bool visit_below(TreeNode *node, const Visit *v)
{
    if (!node)
        return true;
    bool after = bytes_compare(node->begin, v->from) >= 0;
    bool before = v->endless || bytes_compare(node->begin, v->to) < 0;
    if (after && !visit_below(node->left, v))
        return false;
    if (after && before && !v->visit(node, v->userdata))
        return false;
    return !before || visit_below(node->right, v);
}

void tree_visit(const Tree *tree, Bytes from, Bytes to, bool endless, TreeVisitor visit,
                void *userdata)
{
    Visit v = {.from = from, .to = to, .endless = endless, .visit = visit, .userdata = userdata};
    (void)visit_below(tree->root, &v); /* whether the visitor ended the visit does not matter */
}

static bool ends_after(const TreeNode *node, Bytes key)
{
    return node->endless || bytes_compare(node->end, key) > 0;
}

static bool visit_around(TreeNode *node, const Visit *v)
{
    if (!node || !ends_after(node->last, v->from))
        return true;
    if (!visit_around(node->left, v))
        return false;
    if (bytes_compare(node->begin, v->from) > 0)
        return true;
    if (ends_after(node, v->from) && !v->visit(node, v->userdata))
        return false;
    return visit_around(node->right, v);
}

void tree_visit_around(const Tree *tree, Bytes key, TreeVisitor visit, void *userdata)
{
    Visit v = {.from = key, .visit = visit, .userdata = userdata};
    (void)visit_around(tree->root, &v); /* whether the visitor ended the visit does not matter */
}
