/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faulty.c -- faults that a tool must report, to prove that it works. The argument selects the fault: race,
 * relaxed, overflow, leak, uninitialised. "release" and "none" are free of faults: the exit status is 0.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile int shared;
static int handed;
static atomic_bool is_handed;
static char *volatile lost;
static volatile int sink;

static void *
increment(void *arg)
{
	(void)arg;
	shared = shared + 1;
	return NULL;
}

static void *
hand_over(void *order)
{
	handed = 7;
	atomic_store_explicit(&is_handed, true, *(memory_order *)order);
	return NULL;
}

/* A value from one thread to another, published by a flag. */
static int
by_flag(memory_order store, memory_order load)
{
	pthread_t other;

	if (pthread_create(&other, NULL, hand_over, &store) != 0)
		return 2;
	while (!atomic_load_explicit(&is_handed, load))
		sched_yield();
	sink = handed;
	pthread_join(other, NULL);
	return sink != 7;
}

int
main(int argc, char **argv)
{
	const char *fault = argc == 2 ? argv[1] : "";

	if (strcmp(fault, "race") == 0) {
		pthread_t other;
		if (pthread_create(&other, NULL, increment, NULL) != 0)
			return 2;
		increment(NULL);
		pthread_join(other, NULL);
	} else if (strcmp(fault, "relaxed") == 0) {
		return by_flag(memory_order_relaxed, memory_order_relaxed);
	} else if (strcmp(fault, "release") == 0) {
		return by_flag(memory_order_release, memory_order_acquire);
	} else if (strcmp(fault, "overflow") == 0) {
		char *block = malloc(8);
		volatile size_t behind = 8;
		if (block == NULL)
			return 2;
		sink = ((volatile char *)block)[behind];
		free(block);
	} else if (strcmp(fault, "leak") == 0) {
		lost = malloc(1234);
		lost = NULL;
	} else if (strcmp(fault, "uninitialised") == 0) {
		int *volatile block = malloc(sizeof(int));
		if (block != NULL && *block == 7)
			puts("seven");
		free(block);
	} else if (strcmp(fault, "none") != 0) {
		fputs("usage: faulty race|relaxed|release|overflow|leak|uninitialised|none\n", stderr);
		return 2;
	}
	return 0;
}
