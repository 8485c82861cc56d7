/* SPDX-License-Identifier: BSD-3-Clause */

/* Threads that start together and report failures to the test. */
#ifndef MT_H
#define MT_H

#include <pthread.h>
#include <stdatomic.h>

#include "data.h"

enum { THREADS = 8 };

static atomic_int mt_wrong;
static pthread_barrier_t mt_start;

/* Usable in any thread, unlike the assertions of cmocka. */
#define EXPECT(condition) \
	do { \
		if (!(condition) && atomic_fetch_add(&mt_wrong, 1) == 0) \
			print_error("%s:%d: %s\n", __FILE__, __LINE__, #condition); \
	} while (0)

struct mt_thread {
	pthread_t id;
	int index;
	void (*run)(int index);
};

static void *mt_entry(void *arg)
{
	struct mt_thread *t = arg;

	pthread_barrier_wait(&mt_start);
	t->run(t->index);
	return NULL;
}

static void mt_run(void (*run)(int index))
{
	struct mt_thread threads[THREADS];

	mock_untracked_begin(); /* stacks of threads are not memory of the library */
	pthread_barrier_init(&mt_start, NULL, THREADS);
	for (int i = 0; i < THREADS; i++) {
		threads[i].index = i;
		threads[i].run = run;
		assert_int_equal(pthread_create(&threads[i].id, NULL, mt_entry, &threads[i]), 0);
	}
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i].id, NULL), 0);
	pthread_barrier_destroy(&mt_start);
	mock_untracked_end();
	assert_int_equal(atomic_exchange(&mt_wrong, 0), 0);
}

#endif /* MT_H */
