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

enum { EXIT_TEXT_BYTES = 256 };

/* The last of what a trainer said over its channel. */
typedef struct LastWords {
    bool error, done;           /* `error` or `done` was received */
    int exit_code;              /* of `error` */
    char text[EXIT_TEXT_BYTES]; /* of `error`; "finished" or "left" of `done` */
} LastWords;

typedef struct ExitVerdict {
    int code;            /* exit code, or -signal */
    bool finished, left; /* the trainer said that the job is finished, or that it left on request */
    bool hung;           /* the rank stood still until its dead-man timer ended it */
    char text[EXIT_TEXT_BYTES]; /* the reason, for people */
} ExitVerdict;

/* Records are UTF-8: of a text that is not (a trainer printed bytes) each wrong byte becomes '?', and of one that was
 * cut inside a character the half of it goes. */
void exit_repair_text(char *text);
/* Copies a trainer's last words. Long paths lose their middle, so that the end, which says what is wrong, finds room.
 * The manifest that the world resumes from ("": none), and what lies beside it, stay whole: by them a leader knows that
 * the checkpoint is to blame. */
void exit_copy_text(char ret[EXIT_TEXT_BYTES], const char *text, const char *resumes);

/* code and value are those of waitid: CLD_EXITED, CLD_KILLED or CLD_DUMPED, and the exit code or signal. last_line: the
 * last line that the trainer printed. killed_why: why the daemon killed it; NULL: the daemon did not. */
ExitVerdict exit_judge(int code, int value, const LastWords *words, const char *last_line,
                       const char *killed_why);
