/* SPDX-License-Identifier: Apache-2.0 */
/* frame.h - what `sdctl top` shows, as lines of text: the cluster, what is wrong and what to do, jobs, closed nodes.
 *
 * Ownership: frame_make() fills the caller's Frame; frame_clear() accepts a zeroed one. A FrameInput borrows.
 * Units:     cells and lines of a terminal; *_usec is CLOCK_REALTIME microseconds.
 * Errors:    none.
 * Threads:   the main thread.
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
    const Members *members; /* NULL: not asked yet */
    uint64_t silent_usec;   /* since when etcd's watch is silent; 0: it is not */
    uint64_t now_usec;
} FrameInput;

/* Makes the lines, none wider than `columns`. rows 0: as many lines as there is to say; else at most `rows`, and lines
 * that say how much is left out. */
void frame_make(const FrameInput *input, int columns, int rows, Frame *ret);
void frame_clear(Frame *frame);
