/* SPDX-License-Identifier: BSD-3-Clause */
/* tables.c -- the tests of this program. */
#include "harness.h"

extern const struct test load_tests[];
extern const struct test kill_tests[];
extern const struct test spoil_tests[];
extern const struct test syscalls_tests[];
extern const struct test stop_tests[];
extern const struct test mixed_tests[];
extern const struct test disk_tests[];

const struct test *const tables[] = {load_tests, kill_tests, spoil_tests, syscalls_tests, stop_tests, mixed_tests, disk_tests, NULL};
