/* SPDX-License-Identifier: Apache-2.0 */
/* attention-choice.h - an attention's entry in a plan set:
 * {"engine":6,"images":4,"knobs":{"24":26},"workspace":671416576}, or with "padding_mask":true.
 *
 * cuDNN's deterministic backward needs 2 bytes of workspace for each pair of a query and a key: 5.4 GB for 32 images
 * of 4096 tokens with 5 heads. It takes fewer images at once instead, one group after the other; the entry says how
 * many. Where queries or keys do not fill tiles of 128, new entries ask for cuDNN's padding mask (attention-graph.h);
 * one without the key has none. A shape that cuDNN refused when the plans were made, or that our own kernels computed
 * in less time (attention-tile.h), has {"own_kernels":true} instead, for each of its passes.
 *
 * Ownership: attention_choice_entry() and attention_own_entry() give the caller a reference, attention_choose() a
 *            graph; attention_lengths_new() gives memory of the device, which attention_lengths_free() takes back.
 * Units:     workspace in bytes.
 * Errors:    0 or -errno; the text names the operation.
 * Threads:   any.
 */
#pragma once

#include "base/json/json.h"
#include "kernels/cuda/attention/attention-graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The most bytes that a plan made here may take of the workspace, which all operations share. */
enum { ATTENTION_WORKSPACE_MAX = 1 << 30 };

typedef struct AttentionChoice {
    ConvChoice engine;
    int images; /* that the pass takes at once: a divisor of all */
    bool padding_mask;
} AttentionChoice;

/* operation names the entry in errors, and is of n images. -EINVAL. */
int attention_choice_read(const char *operation, int n, const json_t *entry, AttentionChoice *ret,
                          Error *err);
json_t *attention_choice_entry(const AttentionChoice *choice, int64_t workspace_bytes);
json_t *attention_own_entry(void);
bool attention_entry_is_own(const json_t *entry);

/* The choice's graph, of `images` images. */
int attention_choice_graph(const AttentionTarget *target, const AttentionShape *shape,
                           AttentionPass pass, const AttentionChoice *choice, AttentionGraph **ret,
                           Error *err);
/* Whether its tokens do not fill their tiles, so that who makes a plan set asks for a padding mask first. */
bool attention_has_tail(const AttentionShape *shape);
/* For who makes a plan set where no GPU is: the most images at once whose workspace is at most so large, and the first
 * deterministic engine for them, with its graph; without a padding mask only where there is none with it. -ENOENT: not
 * even one image, or no engine. */
int attention_choose(const AttentionTarget *target, const AttentionShape *shape, AttentionPass pass,
                     int64_t workspace_max_bytes, AttentionChoice *ret, AttentionGraph **ret_graph,
                     Error *err);

/* Returns how many bytes of the tensor each image has; 0 for the lengths, since those of all groups of images are the
 * same. */
size_t attention_image_bytes(const AttentionShape *shape, AttentionTensor tensor);
/* The tensors of the images from `first` on. */
AttentionTensors attention_images(const AttentionShape *shape, const AttentionTensors *tensors,
                                  int64_t first);

/* The lengths of all images, in `to`. free() accepts what was never made. */
int attention_lengths_new(Device *device, const AttentionShape *shape, AttentionTensors *to,
                          Error *err);
void attention_lengths_free(Device *device, AttentionTensors *to);

#ifdef __cplusplus
}
#endif
