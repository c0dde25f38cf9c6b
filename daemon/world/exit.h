/* exit.h - how a rank ended: wait status and last words become an exit code and a text.
 *
 * Ownership: values.
 * Units:     exit codes; signals negative.
 * Errors:    none.
 * Threads:   any; pure.
 */
#pragma once

#include "base/macro.h"

typedef struct LastWords { /* what the trainer said over its channel before it ended */
    bool error, done;      /* `error` or `done` was received */
    int exit_code;         /* of error */
    char text[256];        /* of error; "finished" or "left" of done */
} LastWords;

typedef struct ExitVerdict {
    int code; /* exit code, or -signal */
    bool finished, left, hung;
    char text[256];
} ExitVerdict;

/* Records are UTF-8: a text that is not (a trainer printed bytes, or a cut split a letter) keeps
 * its ASCII and gets '?' for the rest. */
void exit_repair_text(char *text);

/* status as waitid gives it: code is CLD_EXITED, CLD_KILLED or CLD_DUMPED, value the exit code or
 * signal. last_line: of what it printed. killed_why: NULL, or why the daemon killed it. */
ExitVerdict exit_judge(int code, int value, const LastWords *words, const char *last_line,
                       const char *killed_why);
