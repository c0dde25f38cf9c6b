/* SPDX-License-Identifier: Apache-2.0 */
/* exit.h - judges how a rank ended: makes an exit code and a text of its wait status and its last messages.
 *
 * Ownership: values. Threads: any; pure.
 * Units:     exit codes; signals negative.
 */
#pragma once

#include "base/macro.h"

enum { EXIT_TEXT_BYTES = 256 };

/* The final messages of a trainer over its channel. */
typedef struct LastWords {
    bool error, done;           /* `error` or `done` was received */
    int exit_code;              /* exit code of `error` */
    char text[EXIT_TEXT_BYTES]; /* text of `error`; "finished" or "left" of `done` */
} LastWords;

typedef struct ExitVerdict {
    int code;            /* exit code, or -signal */
    bool finished, left; /* the trainer said that the job is finished, or that it left on request */
    bool hung;           /* the rank made no progress until its dead-man timer ended it */
    char text[EXIT_TEXT_BYTES]; /* the reason, for people */
} ExitVerdict;

/* Makes the text valid UTF-8, as records must be: each invalid byte becomes '?', and an incomplete character at
 * the end, where the text was cut, is removed. */
void exit_repair_text(char *text);
/* Copies a trainer's final text. Long paths lose their middle, so that the end, which says what is wrong, has room.
 * Paths in the folder of the manifest that the world resumes from (resumes; "": none) stay whole: by them a leader
 * knows that the checkpoint is to blame. */
void exit_copy_text(char ret[EXIT_TEXT_BYTES], const char *text, const char *resumes);

/* code and value are those of waitid: CLD_EXITED, CLD_KILLED or CLD_DUMPED, and the exit code or signal. last_line: the
 * last line that the trainer printed. killed_why: why the daemon killed it; NULL: the daemon did not. */
ExitVerdict exit_judge(int code, int value, const LastWords *words, const char *last_line,
                       const char *killed_why);
