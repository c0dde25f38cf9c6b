/* SPDX-License-Identifier: Apache-2.0 */
/* child-message.h - what parent and child of pictures.h say to each other over a socket of packets.
 *
 *     parent ── setup ─► child ── ready ─► parent ── request ─► child ── answer ─► parent ...
 *
 * Both ends are the same program, so structs go as they lie in memory. The shared memory has PICTURES_PER_CHILD places
 * for files and, behind them, as many for RGB bytes. A child answers in the order of the requests.
 *
 * Ownership: none.
 * Units:     bytes.
 * Errors:    -EPROTO: no answer that an honest child would give.
 * Threads:   any.
 */
#pragma once

#include "encoders/pictures/picture-decode.h"

#include <sys/types.h>

enum { CHILD_SOCKET_FD = 0, CHILD_MEMORY_FD = 1, CHILD_READY = 0x52454459 };

/* The word that makes a program a child: argv[1]. */
#define CHILD_WORD "decode-pictures"

typedef struct ChildSetup {
    PictureRecipe recipe;
    int32_t parent;
} ChildSetup;

typedef struct ChildReady {
    uint32_t word;
    int32_t filter; /* child_filter()'s */
} ChildReady;

typedef struct ChildRequest {
    uint32_t place;
    uint32_t n_bytes;
} ChildRequest;

typedef struct ChildAnswer {
    uint32_t place;
    int32_t r; /* picture_decode()'s */
    Error err;
} ChildAnswer;

/* pictures_child() was called, so that a program which starts itself anew becomes a child. */
extern bool pictures_child_requested;

size_t child_memory_bytes(const PictureRecipe *recipe);
size_t child_file_at(uint32_t place);
size_t child_rgb_at(const PictureRecipe *recipe, uint32_t place);

/* Checks the n bytes of a packet as the answer for this place. *ret then has a verdict or 0 as r, and a text without
 * control characters; -ENOMEM is a child's as well. */
int child_answer_check(const void *packet, size_t n, uint32_t place, ChildAnswer *ret);
