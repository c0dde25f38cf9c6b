/* SPDX-License-Identifier: Apache-2.0 */
/* exit.h - how a rank ended: wait status and last words become an exit code and a text.
 *
 * Ownership: values.
 * Units:     exit codes; signals negative.
 * Errors:    none.
 * Threads:   any; pure.
 */
#pragma once

#include "base/macro.h"

/* The last of what a trainer said over its channel. */
typedef struct LastWords {
    bool error, done; /* `error` or `done` was received */
    int exit_code;    /* of `error` */
    char text[256];   /* of `error`; "finished" or "left" of `done` */
} LastWords;

typedef struct ExitVerdict {
    int code;            /* exit code, or -signal */
    bool finished, left; /* the trainer said that the job is finished, or that it left on request */
    bool hung;           /* the rank stood still until its dead-man timer ended it */
    char text[256];      /* the reason, for people */
} ExitVerdict;

/* Records are UTF-8: a text that is not (a trainer printed bytes, or a cut split a letter) keeps
 * its ASCII and gets '?' for the rest. */
void exit_repair_text(char *text);

/* code and value are those of waitid: CLD_EXITED, CLD_KILLED or CLD_DUMPED, and the exit code or signal. last_line: the
 * last line that the trainer printed. killed_why: why the daemon killed it; NULL: the daemon did not. */
ExitVerdict exit_judge(int code, int value, const LastWords *words, const char *last_line,
                       const char *killed_why);
