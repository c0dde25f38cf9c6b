/* SPDX-License-Identifier: Apache-2.0 */
/* testing-disk.h - simulates a disk that hangs under a program, without a real disk and without root.
 *
 * Each sync of the program waits for a helper process (seccomp's user notification), which lets the sync continue. When
 * the helper is stopped with SIGSTOP, the disk seems to hang: the program's other threads run and
 * its sockets answer, but none of its data reaches stable storage. SIGCONT ends the hang.
 *
 * Ownership: the helper ends with the program.
 * Units:     none.
 * Errors:    none: if the kernel has no user notification (before 5.5), the program uses its disk as usual.
 * Threads:   between fork() and exec(), in the child.
 */
#pragma once

#include <sys/types.h>

/* From now on, each fsync and fdatasync of this process and its children waits for the helper. Writes the helper's pid,
 * a pid_t, to the descriptor report; writes nothing if there can be no helper. */
void testing_disk_attach(int report);
