/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - what a program reports to its runner over SDTRAIN_SOCKET: a packet of lines KEY=VALUE.
 *
 * Ownership: an ExecReport is a value.
 * Units:     steps; seconds as named.
 * Errors:    -EINVAL with a text for people. The other lines of the packet still count.
 * Threads:   any.
 * Source:    docs/operating/programs.md, "What a program can report".
 */
#pragma once

#include "base/error.h"
#include "protocol/eval-results.h"
#include "protocol/train-stage.h"

enum { EXEC_PACKET_MAX = 4096, EXEC_REGISTERED_MAX = 512, EXEC_STATUS_MAX = 128 };

/* The keys of a packet, one bit each. */
typedef enum ExecKey {
    EXEC_KEY_READY = 1 << 0,
    EXEC_KEY_STEP = 1 << 1,
    EXEC_KEY_LOSS = 1 << 2,
    EXEC_KEY_GRAD_NORM = 1 << 3,
    EXEC_KEY_LR = 1 << 4,
    EXEC_KEY_SAMPLES = 1 << 5,
    EXEC_KEY_STAGE = 1 << 6,
    EXEC_KEY_CHECKPOINT = 1 << 7,
    EXEC_KEY_STATUS = 1 << 8,
    EXEC_KEY_WATCHDOG = 1 << 9,
    EXEC_KEY_EXTEND = 1 << 10,
    EXEC_KEY_FINISHED = 1 << 11,
    EXEC_KEY_POLLS = 1 << 12,
    EXEC_KEY_STACKS = 1 << 13,
    EXEC_KEY_RESULT = 1 << 14,
    EXEC_KEY_ARTIFACT = 1 << 15,
} ExecKey;

typedef struct ExecReport {
    unsigned has; /* ExecKey bits: the keys of the packet whose values are good */
    int64_t step; /* the last step that is done */
    double loss, grad_norm, lr;
    int64_t samples;                      /* samples since step 0 */
    TrainStage stage;                     /* loading, computing, reducing or saving */
    char checkpoint[EXEC_REGISTERED_MAX]; /* URI of a checkpoint that is durable */
    char status[EXEC_STATUS_MAX];
    int extend_sec;
    int stacks_signal;   /* the process that reports prints its stacks when it gets this signal */
    EvalResults results; /* the numbers and artifacts of this packet */
} ExecReport;

/* Parses a packet of n bytes. The error is that of the first bad line. */
int exec_report_parse(const char *packet, size_t n, ExecReport *ret, Error *err);
