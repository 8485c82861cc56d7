/* SPDX-License-Identifier: BSD-3-Clause */

/* The five data path operations of a context: posting, polling, arming. */

#include <inttypes.h>

#include "mock_impl.h"

enum { MAX_WC = 64 };

static struct ibv_wc wcs[MAX_WC];
static int n_wcs;
static bool poll_forced;
static int poll_result;

void mock_ops(struct ibv_context_ops *ops);
void mock_ops_reset(void);

void mock_ops_reset(void)
{
	n_wcs = 0;
	poll_forced = false;
}

void mock_wc(const struct ibv_wc *wc, int n)
{
	assert_true(n_wcs + n <= MAX_WC);
	memcpy(wcs + n_wcs, wc, sizeof(*wc) * (size_t)n);
	n_wcs += n;
}

void mock_poll_returns(int n)
{
	poll_forced = true;
	poll_result = n;
}

/* ---- posting ---- */

static const char *opcode_name(enum ibv_wr_opcode opcode)
{
	switch (opcode) {
	case IBV_WR_RDMA_WRITE: return "WRITE";
	case IBV_WR_RDMA_WRITE_WITH_IMM: return "WRITE_IMM";
	case IBV_WR_SEND: return "SEND";
	case IBV_WR_SEND_WITH_IMM: return "SEND_IMM";
	case IBV_WR_RDMA_READ: return "READ";
	default: return "another opcode";
	}
}

static void flag_names(unsigned flags, char *text, size_t size)
{
	snprintf(text, size, "%s%s%s%s", flags & IBV_SEND_SIGNALED ? "S" : "-",
			flags & IBV_SEND_FENCE ? "F" : "-", flags & IBV_SEND_INLINE ? "I" : "-",
			flags & ~(IBV_SEND_SIGNALED | IBV_SEND_FENCE | IBV_SEND_INLINE) ? "?" : "");
}

static const char *sge_text(const struct ibv_sge *sge, int num_sge, bool in_line, char *text, size_t size)
{
	if (num_sge == 0) {
		snprintf(text, size, "no data");
	} else if (num_sge != 1) {
		snprintf(text, size, "%d sge", num_sge);
	} else if (in_line) {
		/* the provider copies inline data while the call lasts; the key is not read */
		const unsigned char *b = (const unsigned char *)(uintptr_t)sge->addr;
		size_t used = (size_t)snprintf(text, size, "inline ");
		for (uint32_t i = 0; i < sge->length && used < size; i++)
			used += (size_t)snprintf(text + used, size - used, "%02x", b[i]);
	} else {
		snprintf(text, size, "%s %u 0x%x", where(sge->addr), sge->length, sge->lkey);
	}
	return text;
}

/* Only the fields that this opcode uses are checked. */
static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad_wr)
{
	char flags[8], data[64], remote[64] = "", imm[32] = "";
	enum ibv_wr_opcode op = wr->opcode;

	flag_names(wr->send_flags, flags, sizeof(flags));
	if (op == IBV_WR_RDMA_READ || op == IBV_WR_RDMA_WRITE || op == IBV_WR_RDMA_WRITE_WITH_IMM)
		snprintf(remote, sizeof(remote), ", remote 0x%" PRIx64 " 0x%x",
				wr->wr.rdma.remote_addr, wr->wr.rdma.rkey);
	if (op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM) {
		const unsigned char *b = (const unsigned char *)&wr->imm_data;
		snprintf(imm, sizeof(imm), ", imm %02x%02x%02x%02x", b[0], b[1], b[2], b[3]);
	}
	int err = mock_call("post_send(%s, 0x%" PRIx64 ", %s, %s, %s%s%s)", nm(qp), wr->wr_id,
			opcode_name(op), flags, sge_text(wr->sg_list, wr->num_sge,
			wr->send_flags & IBV_SEND_INLINE, data, sizeof(data)), remote, imm);
	obj_use(qp, "qp");
	if (wr->next != NULL)
		mock_misuse("post_send: more than one request");
	if (bad_wr == NULL)
		mock_misuse("post_send: no place for the bad request");
	else if (err >= 0)
		*bad_wr = wr;
	mock_done(-1); /* a post does not report by errno */
	return err < 0 ? 0 : err;
}

static int recv_call(const char *fn, const void *queue, const char *kind, struct ibv_recv_wr *wr,
		struct ibv_recv_wr **bad_wr)
{
	char data[64];
	int err = mock_call("%s(%s, 0x%" PRIx64 ", %s)", fn, nm(queue), wr->wr_id,
			sge_text(wr->sg_list, wr->num_sge, false, data, sizeof(data)));

	obj_use(queue, kind);
	if (wr->next != NULL)
		mock_misuse("%s: more than one request", fn);
	if (bad_wr == NULL)
		mock_misuse("%s: no place for the bad request", fn);
	else if (err >= 0)
		*bad_wr = wr;
	mock_done(-1);
	return err < 0 ? 0 : err;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return recv_call("post_recv", qp, "qp", wr, bad_wr);
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad_wr)
{
	return recv_call("post_srq_recv", srq, "srq", wr, bad_wr);
}

/* ---- completions ---- */

static int poll_cq(struct ibv_cq *cq, int num, struct ibv_wc *wc)
{
	char text[16];
	int err = mock_call("poll_cq(%s, %d)", nm(cq), num);
	int n = n_wcs < num ? n_wcs : num;

	obj_use(cq, "cq");
	if (err >= 0) {
		n = -err;
	} else {
		memcpy(wc, wcs, sizeof(*wc) * (size_t)n);
		memmove(wcs, wcs + n, sizeof(*wc) * (size_t)(n_wcs - n));
		n_wcs -= n;
		if (poll_forced)
			n = poll_result;
		poll_forced = false;
		snprintf(text, sizeof(text), "%d", n);
		mock_made_text(text);
	}
	mock_done(-1);
	return n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	int err = mock_call("ibv_req_notify_cq(%s, %d)", nm(cq), solicited_only);

	obj_use(cq, "cq");
	mock_done(err);
	return err < 0 ? 0 : err;
}

void mock_ops(struct ibv_context_ops *ops)
{
	ops->post_send = post_send;
	ops->post_recv = post_recv;
	ops->post_srq_recv = post_srq_recv;
	ops->poll_cq = poll_cq;
	ops->req_notify_cq = req_notify_cq;
}
