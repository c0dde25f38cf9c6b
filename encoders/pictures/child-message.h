/* SPDX-License-Identifier: Apache-2.0 */
/* child-message.h - the messages between parent and child of pictures.h, over a socket of packets.
 *
 *     parent ── setup ─► child ── ready ─► parent ── request ─► child ── answer ─► parent ...
 *
 * Both ends are the same program, so structs are sent as they are in memory. The shared memory has PICTURES_PER_CHILD
 * places for files and, behind them, as many for RGB bytes. A child answers in the order of the requests.
 *
 * Ownership: none. Units: bytes.
 * Errors:    -EPROTO: an answer that a correct child would not give.
 */
#pragma once

#include "encoders/pictures/picture-decode.h"

#include <sys/types.h>

enum { CHILD_SOCKET_FD = 0, CHILD_MEMORY_FD = 1, CHILD_READY = 0x52454459 };

/* The value of argv[1] that makes a program a child. */
#define CHILD_WORD "decode-pictures"

typedef struct ChildSetup {
    PictureRecipe recipe;
    int32_t parent;
} ChildSetup;

typedef struct ChildReady {
    uint32_t word;
    int32_t filter; /* result of child_filter() */
} ChildReady;

typedef struct ChildRequest {
    uint32_t place;
    uint32_t n_bytes;
} ChildRequest;

typedef struct ChildAnswer {
    uint32_t place;
    int32_t r; /* result of picture_decode() */
    Error err;
} ChildAnswer;

/* Set by pictures_child(): only a program that calls it becomes a child when it is started again. */
extern bool pictures_child_requested;

size_t child_memory_bytes(const PictureRecipe *recipe);
size_t child_file_at(uint32_t place);
size_t child_rgb_at(const PictureRecipe *recipe, uint32_t place);

/* Checks the n bytes of a packet as the answer for this place. On success, ret->r is 0, a verdict or -ENOMEM, and the
 * error's text has no control characters. */
int child_answer_check(const void *packet, size_t n, uint32_t place, ChildAnswer *ret);
