/* SPDX-License-Identifier: Apache-2.0 */
/* attention-choice.h - an attention's entry in a plan set:
 * {"engine":6,"images":4,"knobs":{"24":26},"workspace":671416576}, or with "padding_mask":true.
 *
 * cuDNN's deterministic backward needs 2 bytes of workspace for each pair of a query and a key: 5.4 GB for 32 images of
 * 4096 tokens with 5 heads. So the pass processes the images in groups, one group after the other; "images" is the
 * number in a group. Where the queries or keys do not fill tiles of 128, new entries use cuDNN's padding mask
 * (attention-graph.h); an entry without the key "padding_mask" uses no mask. If cuDNN refused a shape when the plans
 * were made, or our own kernels were faster (attention-tile.h), the entry is {"own_kernels":true} for each pass of the
 * shape.
 *
 * Folder:    defaults of the headers here: Threads: LANE_COMPUTE's.
 * Units: workspace in bytes. Threads: any.
 * Ownership: attention_choice_entry() and attention_own_entry() give the caller a reference, attention_choose() a
 *            graph; attention_lengths_new() gives device memory, which attention_lengths_free() releases.
 * Errors:    0 or -errno; the text names the operation.
 */
#pragma once

#include "base/json/json.h"
#include "kernels/cuda/attention/attention-graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest workspace, in bytes, that a plan made by this module may need. All operations share one workspace. */
enum { ATTENTION_WORKSPACE_MAX = 1 << 30 };

typedef struct AttentionChoice {
    ConvChoice engine;
    int images; /* images that the pass processes at once: a divisor of the number of all images */
    bool padding_mask;
} AttentionChoice;

/* Reads an operation's entry. `operation` is the operation's name in errors, n the number of its images. Returns 0, or
 * -EINVAL for a bad entry. */
int attention_choice_read(const char *operation, int n, const json_t *entry, AttentionChoice *ret,
                          Error *err);
json_t *attention_choice_entry(const AttentionChoice *choice, int64_t workspace_bytes);
json_t *attention_own_entry(void);
bool attention_entry_is_own(const json_t *entry);

/* Makes the graph of the choice, for choice->images images. */
int attention_choice_graph(const AttentionTarget *target, const AttentionShape *shape,
                           AttentionPass pass, const AttentionChoice *choice, AttentionGraph **ret,
                           Error *err);
/* Reports whether the tokens of the shape leave a tile partly empty. For such a shape a caller that makes a plan set
 * tries a padding mask first. */
bool attention_has_tail(const AttentionShape *shape);
/* For tests, which make plans without a GPU: chooses the most images at once whose workspace is at most
 * workspace_max_bytes, and the first deterministic engine for them, and returns its graph. A shape with a tail is first
 * tried with a padding mask, and without a mask only if no plan with a mask exists. -ENOENT: one image needs
 * more workspace, or there is no engine. */
int attention_choose(const AttentionTarget *target, const AttentionShape *shape, AttentionPass pass,
                     int64_t workspace_max_bytes, AttentionChoice *ret, AttentionGraph **ret_graph,
                     Error *err);

/* Returns how many bytes of the tensor each image has, or 0 for the lengths, because all groups of images share the
 * same lengths. */
size_t attention_image_bytes(const AttentionShape *shape, AttentionTensor tensor);
/* Returns `tensors` with each pointer moved to the image `first`. */
AttentionTensors attention_images(const AttentionShape *shape, const AttentionTensors *tensors,
                                  int64_t first);

/* Allocates the lengths of all images and puts them in `to`. attention_lengths_free() accepts lengths that were never
 * allocated. */
int attention_lengths_new(Device *device, const AttentionShape *shape, AttentionTensors *to,
                          Error *err);
void attention_lengths_free(Device *device, AttentionTensors *to);

#ifdef __cplusplus
}
#endif
