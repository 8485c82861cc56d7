/* SPDX-License-Identifier: BSD-3-Clause */
/* tables.c -- the tests of this program. */
#include "harness.h"

extern const struct test data_tests[];
extern const struct test message_tests[];
extern const struct test flush_tests[];
extern const struct test slow_tests[];
extern const struct test queue_tests[];
extern const struct test connect_tests[];
extern const struct test end_tests[];
extern const struct test access_tests[];
extern const struct test process_tests[];
extern const struct test overrun_tests[];
extern const struct test threads_tests[];
extern const struct test stacks_tests[];
extern const struct test acceptors_tests[];
extern const struct test deliver_tests[];
extern const struct test calls_tests[];
extern const struct test registrations_tests[];
extern const struct test batch_tests[];
extern const struct test signals_tests[];
extern const struct test forks_tests[];
extern const struct test cancel_tests[];
extern const struct test alive_tests[];
extern const struct test hostile_tests[];
extern const struct test words_tests[];
extern const struct test direct_tests[];
extern const struct test held_tests[];
extern const struct test local_tests[];
extern const struct test strict_tests[];
extern const struct test remote_tests[];
extern const struct test reasons_tests[];
extern const struct test faults_tests[];

const struct test *const tables[] = {data_tests, message_tests, flush_tests, slow_tests, queue_tests, connect_tests,
	end_tests, access_tests, process_tests, overrun_tests, threads_tests, stacks_tests, acceptors_tests, deliver_tests, calls_tests,
	registrations_tests, batch_tests, signals_tests, forks_tests, cancel_tests, alive_tests, hostile_tests, words_tests,
	local_tests, direct_tests, held_tests, strict_tests, remote_tests, reasons_tests, faults_tests, NULL};
