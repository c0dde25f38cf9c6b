/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h - makes the lines of text that `sdctl top` shows: the cluster, jobs, faults with advice, nodes that get no
 * ranks.
 *
 * Errors: none. Threads: the main thread.
 * Ownership: frame_make() fills the caller's Frame; frame_clear() accepts a zeroed Frame. A FrameInput borrows its
 *            pointers.
 * Units:     cells and lines of a terminal; *_usec is CLOCK_REALTIME microseconds.
 */
#pragma once

#include "ctl/cluster/members.h"
#include "ctl/model.h"

enum { FRAME_COLUMNS_MIN = 40, FRAME_COLUMNS_MAX = 240, FRAME_LINE_BYTES = 1200 };

typedef enum Tone { TONE_PLAIN, TONE_HEAD, TONE_BAD, TONE_BUSY, TONE_GOOD, TONE_SOFT } Tone;

typedef struct FrameLine {
    Tone tone;
    char text[FRAME_LINE_BYTES];
} FrameLine;

typedef struct Frame {
    FrameLine *lines;
    size_t n, room;
} Frame;

typedef struct FrameInput {
    const Model *model;
    const Members *members; /* NULL: not known yet */
    uint64_t silent_usec;   /* time at which etcd stopped answering; 0: etcd answers */
    uint64_t now_usec;
} FrameInput;

/* Makes the lines, none wider than `columns`. With rows 0, makes all lines; else at most `rows` lines, including lines
 * that tell how many are omitted. */
void frame_make(const FrameInput *input, int columns, int rows, Frame *ret);
void frame_clear(Frame *frame);
