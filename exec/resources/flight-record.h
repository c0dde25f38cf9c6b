/* SPDX-License-Identifier: Apache-2.0 */
/* flight-record.h - the record of a program's last collectives, which PyTorch's NCCL backend (its flight recorder)
 * writes into a file when something is written into a pipe that it has made.
 *
 * The backend looks at the pipe once a second. A program has a pipe if its environment names one, whoever set it there.
 *
 * Ownership: a FlightRecord is a value.
 * Units:     *_usec is CLOCK_BOOTTIME microseconds.
 * Errors:    flight_records_prepare(): -errno with a text.
 * Threads:   one.
 * Source:    ProcessGroupNCCL.cpp of PyTorch: DumpPipe, HeartbeatMonitor.
 */
#pragma once

#include "base/error.h"
#include "base/macro.h"

#include <limits.h>
#include <sys/stat.h>

typedef struct FlightRecord {
    char pipe[PATH_MAX], file[PATH_MAX]; /* empty: the program makes no record */
    uint64_t asked_usec;                 /* 0: it was not asked for */
    uint64_t changed_usec;               /* when the file last grew */
    struct stat was;                     /* the file as it was seen last */
    bool is_written;
} FlightRecord;

/* Makes the folder `<base>/flights`, and removes all but the newest records there. */
int flight_records_prepare(const char *base, Error *err);
/* Fills in where the rank's pipe and record are. pipe, file: TORCH_NCCL_DEBUG_INFO_PIPE_FILE and _TEMP_FILE of the
 * program's environment; NULL: not set. */
void flight_record_find(FlightRecord *record, const char *pipe, const char *file, int rank);
/* Asks for the record. Returns whether somebody reads the pipe. */
bool flight_record_request(FlightRecord *record, uint64_t now_usec);
/* Returns when to look again; 0: the record is written, or it takes too long, or was not asked for. */
uint64_t flight_record_watch(FlightRecord *record, uint64_t now_usec);
