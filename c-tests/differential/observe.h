/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * The transcript. Each observation is one line, "NAME<tab>ANSWER". A name is SCENARIO/WHAT; a scenario is a
 * child process, so that a crash is an answer, too, and no state remains for the next scenario.
 */
#ifndef OBSERVE_H
#define OBSERVE_H

#include "data.h"

/* The argument of a scenario, so that one body serves many of them. */
extern const void *given;

/* Runs the body in a child with a new mock layer and its log thresholds. */
void scenario(const void *what, void (*body)(void), const char *name, ...) __attribute__((format(printf, 3, 4)));
/* The same with the state of the caller: for bodies that share objects. */
void scenario_as_is(const void *what, void (*body)(void), const char *name, ...) __attribute__((format(printf, 3, 4)));
/*
 * Runs it once as it is, then again for each call to the provider that can fail and each error: with that
 * call failing, and for each function with all of its calls failing.
 */
void scenario_failing(const void *what, void (*body)(void), const char *name);

/* Prints a separate observation. */
void record(const char *what, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * One call of the library: its result, its outputs (by the format, evaluated after the call), the levels of
 * its log lines, and its calls of the provider.
 */
#define CALL(expr, ...) CALL_AS(NULL, expr, __VA_ARGS__)
/* With a name: for tables of calls. The others are numbered. */
#define CALL_AS(name, expr, ...) \
	do { \
		call_begins(name, #expr); \
		int ret_ = (expr); \
		call_ends(ret_, __VA_ARGS__); \
	} while (0)
void call_begins(const char *name, const char *expr);
void call_ends(int ret, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/*
 * Includes the levels of log lines in the answers: only needed by a scenario whose objects were created
 * before it.
 */
void observe_log(void);
/* Discards the calls so far, before the observations begin. */
void forget(void);

/* An object of the library in an output: NULL, untouched or an object. */
const char *obj(const void *p);
/* Whether it can be used. */
bool live(const void *p);
const char *ret_name(int ret);
const char *pdata_text(const struct rpma_conn_private_data *pdata);
const char *hex(const void *bytes, size_t n);

/* A fixed sequence that looks random: the same numbers in every run. */
void seed(uint64_t start);
uint64_t next_random(void);

/* The objects of data.h, not observed. */
void data_begin(void);
void data_end(void);

/* One per file. */
void observe_arguments(void);
void observe_values(void);
void observe_descriptors(void);
void observe_operations(void);
void observe_events(void);
void observe_completions(void);
void observe_sequences(void);
void observe_logging(void);

#endif /* OBSERVE_H */
