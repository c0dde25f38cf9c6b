/* fault.h - named points at which a test can make a process die or an operation fail.
 *
 * SDTRAIN_FAULT="point=action[@n][,point=action[@n]...]"; action is one of
 *   kill     SIGKILL to this process
 *   stop     SIGSTOP to this process
 *   stall    sleep for an hour (a hang that signals still end)
 *   slow     sleep for 100 ms (with @* it sets the pace of a step, at no cost of a processor)
 *   enospc, eio, enomem   fault() returns that errno, negative
 * and n is the visit, counted from 1, at which it strikes (1 by default; "@*" means every visit).
 * An unknown action is refused by fault_open(). Without the variable a point costs one load.
 *
 * Ownership: none.
 * Units:     visits.
 * Errors:    0, or the negative errno that the point was told to return.
 * Threads:   any.
 */
#pragma once

#include "base/error.h"

/* Reads SDTRAIN_FAULT; called once, early in main(). */
int fault_open(Error *err);

/* 0 unless a fault strikes here. Callers treat a negative result as the failure of what they were
 * to do. */
int fault(const char *point);
