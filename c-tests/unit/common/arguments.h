/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * For unit/arguments: tables of calls with an argument that is NULL, zero or out of range. Each function in
 * the list of names.h must have rows, so none can be left out.
 *
 * A row has the expected return value, RPMA_E_INVAL for most. The call must not write any output, log, change
 * a log threshold, or call functions of the provider that the row does not list.
 */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include "data.h"
#include "names.h"

/*
 * Functions are called through one type with nine arguments of a word. The calling conventions of x86-64 and
 * aarch64 pass each integer and pointer in a register or a stack slot of eight bytes, so all functions accept
 * that.
 */
enum { MAX_ARGUMENTS = 9 };

struct argument {
	enum { LAST, WORD, OBJECT, OUTPUT } kind;
	uintptr_t word; /* the value; for an object, the address of the variable that points to it */
};

struct row {
	const char *function;
	void (*call)(void);
	struct argument arguments[MAX_ARGUMENTS + 1];
	enum { INVAL, NOTHING_DONE, TEXT } expected; /* RPMA_E_INVAL, 0, a string */
	int last;          /* TEXT: the first argument takes every value up to this one */
	enum { BOTH, OURS, ORIGINAL } library;
	const char *calls; /* lines that the call adds to the log, NULL for none */
	void **consumed;   /* the variable that is NULL afterwards */
};

/* Values of an argument. */
#define NIL {WORD, 0}
#define V(value) {WORD, (uintptr_t)(value)}
#define OBJ(variable) {OBJECT, (uintptr_t)&(variable)}
#define OUT {OUTPUT, 0}
/* a pointer to a pointer that is NULL: nothing to delete */
#define NONE V(&a_none)

/* Rows. */
#define ROW(name, fn, ...) .function = (name), .call = (void (*)(void))(fn), .arguments = {__VA_ARGS__}
#define REFUSED(fn, ...) {ROW(#fn, fn, __VA_ARGS__)}
#define ACCEPTED(fn, ...) {ROW(#fn, fn, __VA_ARGS__), .expected = NOTHING_DONE}
/*
 * For every kind of object, deleting NULL succeeds; NULL instead of the address of the pointer is rejected.
 */
#define DELETES_NOTHING(fn) REFUSED(fn, NIL), ACCEPTED(fn, NONE)
/* A getter or similar: two pointers, both required. */
#define TWO_POINTERS(fn, object) REFUSED(fn, NIL, OUT), REFUSED(fn, object, NIL), REFUSED(fn, NIL, NIL)

/* The objects: those of data.h and these. They are created for each row. */
extern void *a_none;
extern struct rpma_conn *a_shared;     /* with a shared completion channel */
extern struct rpma_mr_remote *a_plain; /* not registered for flush */
extern struct rpma_cq *a_cq;           /* d_conn's; a completion waits in it */
extern struct rpma_ep *a_ep;
extern struct rpma_conn_req *a_req;    /* outgoing: id3, cq2, chan2 */
extern struct rpma_conn_req *a_incoming; /* id4, cq3, chan3 */
extern struct rpma_conn_cfg *a_cfg;
extern struct rpma_srq_cfg *a_srq_cfg;
extern struct rpma_srq *a_srq;
extern struct rpma_peer_cfg *a_pcfg;
extern unsigned char a_desc[32];       /* of a memory region */

#define DEVICE OBJ(CTX)
#define PEER OBJ(d_peer)
#define CONN OBJ(d_conn)
#define SHARED OBJ(a_shared)
#define MR OBJ(d_mr)
#define REMOTE OBJ(d_remote)
#define PLAIN OBJ(a_plain)
#define CQ OBJ(a_cq)
#define EP OBJ(a_ep)
#define REQ OBJ(a_req)
#define INCOMING OBJ(a_incoming)
#define CFG OBJ(a_cfg)
#define SRQ_CFG OBJ(a_srq_cfg)
#define SRQ OBJ(a_srq)
#define PCFG OBJ(a_pcfg)
#define TOKEN V(0xfedcba9876543210)

/* One test per function. Returns the exit status of the program. */
int run_rows(const char *group, const char *const *functions, size_t n_functions, const struct row *rows,
		size_t n_rows);
#define FUNCTION_NAME(name) #name,
#define RUN_ROWS(group, FUNCTIONS, rows) \
	run_rows(group, (const char *const[]){FUNCTIONS(FUNCTION_NAME)}, 0 FUNCTIONS(RPMA_COUNT), rows, \
		sizeof(rows) / sizeof((rows)[0]))

#endif /* ARGUMENTS_H */
