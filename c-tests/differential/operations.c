/* SPDX-License-Identifier: BSD-3-Clause */

/* Data path operations: the fields of the work request that its opcode uses. */

#include <inttypes.h>

#include "observe.h"

#define N(a) (sizeof(a) / sizeof((a)[0]))

void data_begin(void)
{
	d_peer = fx_peer();
	d_conn = fx_conn(d_peer, NULL);
	d_mr = fx_mr(d_peer, RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC);
	d_remote = fx_remote(RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY);
}

void data_end(void)
{
	fx_remote_delete(&d_remote);
	fx_mr_dereg(&d_mr);
	fx_conn_delete(&d_conn);
	fx_peer_delete(&d_peer);
}

static const int flags[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0x80, 0x40000000, -1};
static const size_t offsets[] = {0, 1, 7, 8, 0x7fff, 0x8000, UINT32_MAX, (size_t)1 << 40, SIZE_MAX};
static const size_t lengths[] = {0, 1, 8, 0x8000, INT32_MAX, (size_t)INT32_MAX + 1, UINT32_MAX, (size_t)UINT32_MAX + 1,
	PAST_32_BITS, SIZE_MAX};
static const uint32_t imms[] = {0, 1, 0x01020304, 0x80000000, 0xfffffffe, UINT32_MAX};
static const void *const tokens[] = {NULL, CONTEXT, (void *)1, (void *)UINTPTR_MAX};
static const int post_errors[] = {EINVAL, ENOMEM, EIO, EFAULT, EAGAIN, ENOTSUP};

/* One call of any operation, which ignores arguments that it does not have. */
struct args {
	size_t remote_offset, local_offset, length;
	int flags;
	uint32_t imm;
	const void *token;
	int type;
	bool no_remote, no_local;
};
typedef int operation(const struct args *a);

#define LOCAL (a->no_local ? NULL : d_mr)
#define REMOTE (a->no_remote ? NULL : d_remote)

static struct rpma_conn_req *req;
static struct rpma_srq *srq;

static int op_read(const struct args *a)
{
	return rpma_read(d_conn, LOCAL, a->local_offset, REMOTE, a->remote_offset, a->length, a->flags, a->token);
}

static int op_write(const struct args *a)
{
	return rpma_write(d_conn, REMOTE, a->remote_offset, LOCAL, a->local_offset, a->length, a->flags, a->token);
}

static int op_write_with_imm(const struct args *a)
{
	return rpma_write_with_imm(d_conn, REMOTE, a->remote_offset, LOCAL, a->local_offset, a->length, a->flags, a->imm,
			a->token);
}

static int op_atomic_write(const struct args *a)
{
	static const char bytes[8] = "\x11\x22\x33\x44\x55\x66\x77\x88";

	return rpma_atomic_write(d_conn, REMOTE, a->remote_offset, bytes, a->flags, a->token);
}

static int op_flush(const struct args *a)
{
	return rpma_flush(d_conn, REMOTE, a->remote_offset, a->length, (enum rpma_flush_type)a->type, a->flags, a->token);
}

static int op_send(const struct args *a)
{
	return rpma_send(d_conn, LOCAL, a->local_offset, a->length, a->flags, a->token);
}

static int op_send_with_imm(const struct args *a)
{
	return rpma_send_with_imm(d_conn, LOCAL, a->local_offset, a->length, a->flags, a->imm, a->token);
}

static int op_recv(const struct args *a)
{
	return rpma_recv(d_conn, LOCAL, a->local_offset, a->length, a->token);
}

static int op_srq_recv(const struct args *a)
{
	return rpma_srq_recv(srq, LOCAL, a->local_offset, a->length, a->token);
}

static int op_req_recv(const struct args *a)
{
	return rpma_conn_req_recv(req, LOCAL, a->local_offset, a->length, a->token);
}

static const struct op {
	const char *name;
	operation *fn;
	bool remote, local, flags, imm, type;
	const char *post;
} ops[] = {
	{"rpma_read", op_read, true, true, true, false, false, "post_send"},
	{"rpma_write", op_write, true, true, true, false, false, "post_send"},
	{"rpma_write_with_imm", op_write_with_imm, true, true, true, true, false, "post_send"},
	{"rpma_atomic_write", op_atomic_write, true, false, true, false, false, "post_send"},
	{"rpma_flush", op_flush, true, false, true, false, true, "post_send"},
	{"rpma_send", op_send, false, true, true, false, false, "post_send"},
	{"rpma_send_with_imm", op_send_with_imm, false, true, true, true, false, "post_send"},
	{"rpma_recv", op_recv, false, true, false, false, false, "post_recv"},
	{"rpma_srq_recv", op_srq_recv, false, true, false, false, false, "post_srq_recv"},
	{"rpma_conn_req_recv", op_req_recv, false, true, false, false, false, "post_recv"},
};

static const struct args usual = {16, 32, 64, ALWAYS, 0x0a0b0c0d, CONTEXT, RPMA_FLUSH_TYPE_VISIBILITY, false, false};

static void one(const struct op *op, const struct args *a, const char *extra)
{
	char name[256];

	snprintf(name, sizeof(name), "%sremote %s0x%zx, local %s0x%zx, length 0x%zx, flags 0x%x, imm 0x%x, token %p, type %d",
			extra, a->no_remote ? "NULL " : "", a->remote_offset, a->no_local ? "NULL " : "", a->local_offset,
			a->length, (unsigned)a->flags, a->imm, a->token, a->type);
	CALL_AS(name, op->fn(a), "%s", "");
}

static void ranges(const struct op *op)
{
	struct args a = usual;

	for (size_t i = 0; op->remote && i < N(offsets); i++) {
		a = usual;
		a.remote_offset = offsets[i];
		one(op, &a, "remote offset: ");
	}
	for (size_t i = 0; op->local && i < N(offsets); i++) {
		a = usual;
		a.local_offset = offsets[i];
		one(op, &a, "local offset: ");
	}
	for (size_t i = 0; (op->local || op->type) && i < N(lengths); i++) {
		a = usual;
		a.length = lengths[i];
		one(op, &a, op->local ? "length: " : "length without a local region: ");
	}
	for (size_t i = 0; op->imm && i < N(imms); i++) {
		a = usual;
		a.imm = imms[i];
		one(op, &a, "imm: ");
	}
	for (size_t i = 0; i < N(tokens); i++) {
		a = usual;
		a.token = tokens[i];
		one(op, &a, "token: ");
	}
	for (int type = -1; op->type && type < 4; type++) {
		a = usual;
		a.type = type;
		one(op, &a, "type: ");
	}
}

/* With and without regions, with valid and invalid offsets and lengths, with every combination of flags. */
static void combinations(const struct op *op)
{
	for (size_t f = 0; f < (op->flags ? N(flags) : 1); f++) {
		for (int bits = 0; bits < 32; bits++) {
			struct args a = usual;
			if (((bits & 9) && !op->remote) || ((bits & 18) && !op->local))
				continue;
			a.flags = flags[op->flags ? f : 3];
			a.no_remote = bits & 1;
			a.no_local = bits & 2;
			a.length = bits & 4 ? 0 : 64;
			a.remote_offset = bits & 8 ? 0 : 16;
			a.local_offset = bits & 16 ? 0 : 32;
			one(op, &a, "combined: ");
		}
	}
}

static void failing(const struct op *op)
{
	for (size_t i = 0; i < N(post_errors); i++) {
		mock_fail_reset();
		mock_fail(op->post, 1, post_errors[i]);
		char extra[32];
		snprintf(extra, sizeof(extra), "%s: ", strerrorname_np(post_errors[i]));
		one(op, &usual, extra);
		snprintf(extra, sizeof(extra), "after %s: ", strerrorname_np(post_errors[i]));
		one(op, &usual, extra);
	}
}

static void posts(void)
{
	const struct op *op = given;

	data_begin();
	srq = fx_srq(d_peer, 20);
	req = fx_req(d_peer, NULL);
	ranges(op);
	combinations(op);
	failing(op);
	rpma_conn_req_delete(&req);
	fx_srq_delete(&srq);
	data_end();
}

/*
 * Every usage of the remote region with each type of flush, with and without declared direct write to
 * persistent memory.
 */
static void flush_usages(void)
{
	char name[64];

	data_begin();
	for (int direct = 0; direct < 2; direct++) {
		struct rpma_peer_cfg *cfg = NULL;
		rpma_peer_cfg_new(&cfg);
		rpma_peer_cfg_set_direct_write_to_pmem(cfg, direct);
		rpma_conn_apply_remote_peer_cfg(d_conn, cfg);
		rpma_peer_cfg_delete(&cfg);
		for (int usage = 1; usage < 256; usage++) {
			struct rpma_mr_remote *mr = fx_remote(usage);
			for (int type = 0; type < 3; type++) {
				snprintf(name, sizeof(name), "usage 0x%02x, type %d, direct write %d", (unsigned)usage, type, direct);
				CALL_AS(name, rpma_flush(d_conn, mr, 24, 8, (enum rpma_flush_type)type, ALWAYS, CONTEXT), "%s", "");
			}
			fx_remote_delete(&mr);
		}
	}
	data_end();
}

static void advise(void)
{
	static const int errors[] = {0, EOPNOTSUPP, EFAULT, EINVAL, ENOMEM, EIO, EPERM};
	char name[96];

	data_begin();
	for (size_t o = 0; o < N(offsets); o++)
		for (size_t l = 0; l < N(lengths); l++) {
			snprintf(name, sizeof(name), "offset 0x%zx, length 0x%zx", offsets[o], lengths[l]);
			CALL_AS(name, rpma_mr_advise(d_mr, offsets[o], lengths[l], IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH, 0), "%s", "");
		}
	for (int advice = -1; advice < 5; advice++)
		for (uint32_t f = 0; f < 4; f++) {
			snprintf(name, sizeof(name), "advice %d, flags %u", advice, f);
			CALL_AS(name, rpma_mr_advise(d_mr, 0, 64, advice, f), "%s", "");
		}
	for (size_t i = 1; i < N(errors); i++) {
		mock_fail_reset();
		mock_fail("ibv_advise_mr", 1, errors[i]);
		CALL_AS(strerrorname_np(errors[i]), rpma_mr_advise(d_mr, 0, 64, 0, 0), "%s", "");
	}
	data_end();
}

void observe_operations(void)
{
	for (size_t i = 0; i < N(ops); i++)
		scenario(&ops[i], posts, "posting %s", ops[i].name);
	scenario(NULL, flush_usages, "flush of every usage");
	scenario(NULL, advise, "posting rpma_mr_advise");
}
