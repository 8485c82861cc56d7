/* SPDX-License-Identifier: BSD-3-Clause */
/* start.c -- the cost of a preloaded library for a program that does not use it. */
#include "bench.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROGRAM "/bin/true"

void
start_up(struct side *side)
{
	char preload[4096];
	char *argv[] = {PROGRAM, NULL};
	char *envp[] = {side->opt.preload == NULL ? NULL : preload, NULL};
	struct timer t;

	ctl_barrier(side);
	if (side->initiator) {
		if (side->opt.preload != NULL) {
			int len = snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", side->opt.preload);

			REQUIRE(len < (int)sizeof(preload), "a path of %d bytes", len);
			REQUIRE(access(side->opt.preload, R_OK) == 0, "there is no %s", side->opt.preload);
		}
		for (timer_start(&t, side->opt.ms); timer_next(&t);) {
			int status, error;
			pid_t pid;

			error = posix_spawn(&pid, PROGRAM, NULL, NULL, argv, envp);
			REQUIRE(error == 0, "posix_spawn: %s", strerror(error));
			REQUIRE(waitpid(pid, &status, 0) == pid && status == 0, PROGRAM " ended with %#x", status);
		}
		timer_report(&t, 1);
	}
	ctl_barrier(side);
}
