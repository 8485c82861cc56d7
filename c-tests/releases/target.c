/* SPDX-License-Identifier: BSD-3-Clause */
/* The target: it listens, receives two messages, and checks its memory. */

#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plan.h"
#include "queue.h"

/* A free port. */
static void
free_port(char port[8])
{
	struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	EXPECT(fd >= 0 && bind(fd, (struct sockaddr *)&addr, len) == 0 &&
			getsockname(fd, (struct sockaddr *)&addr, &len) == 0, "no free port");
	snprintf(port, 8, "%u", ntohs(addr.sin_port));
	close(fd);
}

static void
check_message(const struct done *done, const char *message, unsigned seed)
{
	EXPECT(done->byte_len == MESSAGE_SIZE, "a message of %u bytes", done->byte_len);
	check_pattern(message, MESSAGE_SIZE, seed, "message");
}

static void
check_imm(const struct done *done, uint32_t imm)
{
	/* 0.9 has no member for it */
	if (RELEASE >= 10)
		EXPECT(done->has_imm && done->imm == imm, "immediate data is %#x instead of %#x", done->imm, imm);
}

/* The second: a message, or a write whose immediate data consumed the receive. */
static void
receive_second(int initiator, const char *message)
{
	const char *context = message;
	struct done done;
	int ret;

	if (!has_imm(initiator)) {
		done = expect_done(RECEIVES, RECV, context);
		check_message(&done, message, SECOND_SEED);
		return;
	}
	if (RELEASE >= 10) {
		done = expect_done(RECEIVES, RECV_WRITE_WITH_IMM, context);
		check_imm(&done, SECOND_IMM);
		return;
	}
	/* 0.9 does not define that operation */
	ret = take_next(RECEIVES, &done);
	EXPECT(ret == RPMA_E_NOSUPP, "a write with immediate data: %s", rpma_err_2str(ret));
}

static void
check_region(const char *region, int initiator)
{
	struct {
		size_t at, size;
		bool written;
	} const parts[] = {
		{0, DATA_AT, false},
		{DATA_AT, DATA_SIZE, true},
		{DATA_AT + DATA_SIZE, ATOMIC_AT - DATA_AT - DATA_SIZE, false},
		{ATOMIC_AT, 8, has_atomic_write(initiator)},
		{OLD_ATOMIC_AT, 8, has_write_atomic(initiator)},
		{OLD_ATOMIC_AT + 8, IMM_AT - OLD_ATOMIC_AT - 8, false},
		{IMM_AT, IMM_SIZE, has_imm(initiator)},
		{IMM_AT + IMM_SIZE, SOURCE_AT - IMM_AT - IMM_SIZE, false},
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
		if (!parts[i].written)
			check_bytes(region + parts[i].at, parts[i].size, 0, "memory that was not written");
	check_pattern(region + DATA_AT, DATA_SIZE, DATA_SEED, "written data");
	if (has_atomic_write(initiator))
		EXPECT(memcmp(region + ATOMIC_AT, ATOMIC_TEXT, 8) == 0, "rpma_atomic_write");
	if (has_write_atomic(initiator))
		EXPECT(memcmp(region + OLD_ATOMIC_AT, OLD_ATOMIC_TEXT, 8) == 0, "rpma_write_atomic");
	if (has_imm(initiator))
		check_pattern(region + IMM_AT, IMM_SIZE, IMM_SEED, "data written with immediate data");
	check_pattern(region + SOURCE_AT, SOURCE_SIZE, SOURCE_SEED, "data that was only read");
}

static void
describe(struct hello *hello, const struct rpma_mr_local *mr)
{
	struct rpma_peer_cfg *pcfg = NULL;
	size_t mr_size = 0;
	size_t pcfg_size = 0;

	OK(rpma_peer_cfg_new(&pcfg));
	OK(rpma_peer_cfg_set_direct_write_to_pmem(pcfg, true));
	OK(rpma_peer_cfg_get_descriptor_size(pcfg, &pcfg_size));
	OK(rpma_mr_get_descriptor_size(mr, &mr_size));
	EXPECT(mr_size + pcfg_size <= sizeof(hello->descs), "long descriptors");
	hello->release = RELEASE;
	hello->mr_desc_size = (unsigned char)mr_size;
	hello->pcfg_desc_size = (unsigned char)pcfg_size;
	OK(rpma_mr_get_descriptor(mr, hello->descs));
	OK(rpma_peer_cfg_get_descriptor(pcfg, hello->descs + mr_size));
	OK(rpma_peer_cfg_delete(&pcfg));
}

void
run_target(const struct queue *queue, const char *addr)
{
	struct ibv_context *device = NULL;
	struct rpma_peer *peer = NULL;
	struct rpma_conn_cfg *cfg = NULL;
	struct rpma_mr_local *mr = NULL;
	struct rpma_mr_local *message_mr = NULL;
	struct rpma_ep *ep = NULL;
	struct rpma_conn_req *req = NULL;
	struct rpma_conn *conn = NULL;
	struct rpma_conn_private_data theirs = {0};
	struct hello hello = {0};
	struct rpma_conn_private_data ours = {.ptr = &hello, .len = sizeof(hello)};
	struct done done;
	char port[8];

	OK(rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &device));
	OK(rpma_peer_new(device, &peer));

	char *region = pages(REGION_SIZE);
	char *messages = pages(3 * MESSAGE_SIZE);
	char *answer = messages + 2 * MESSAGE_SIZE;
	fill_pattern(region + SOURCE_AT, SOURCE_SIZE, SOURCE_SEED);
	fill_pattern(answer, MESSAGE_SIZE, ANSWER_SEED);
	OK(rpma_mr_reg(peer, region, REGION_SIZE, RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_WRITE_DST |
			RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY | RPMA_MR_USAGE_FLUSH_TYPE_PERSISTENT, &mr));
	OK(rpma_mr_reg(peer, messages, 3 * MESSAGE_SIZE, RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_SEND, &message_mr));
	describe(&hello, mr);

	OK(rpma_conn_cfg_new(&cfg));
	queue->configure(cfg);
	free_port(port);
	OK(rpma_ep_listen(peer, addr, port, &ep));
	printf("listening %s\n", port);
	fflush(stdout);
	OK(rpma_ep_next_conn_req(ep, cfg, &req));
	OK(rpma_conn_cfg_delete(&cfg));
#if RELEASE >= 10
	OK(rpma_conn_req_get_private_data(req, &theirs));
	EXPECT(theirs.len >= sizeof(hello), "%u bytes of private data with the request", theirs.len);
#endif
	OK(rpma_conn_req_recv(req, message_mr, 0, MESSAGE_SIZE, messages));
	OK(rpma_conn_req_recv(req, message_mr, MESSAGE_SIZE, MESSAGE_SIZE, messages + MESSAGE_SIZE));
	OK(rpma_conn_req_connect(&req, &ours, &conn));
	EXPECT(req == NULL, "the request was not consumed");
	expect_event(conn, RPMA_CONN_ESTABLISHED);
	OK(rpma_conn_get_private_data(conn, &theirs));
	EXPECT(theirs.ptr != NULL && theirs.len >= sizeof(hello), "%u bytes of private data", theirs.len);
	int initiator = ((const struct hello *)theirs.ptr)->release;

	open_queue(queue, conn);
	done = expect_done(RECEIVES, RECV, messages);
	check_message(&done, messages, FIRST_SEED);
	if (has_imm(initiator))
		check_imm(&done, FIRST_IMM);
	receive_second(initiator, messages + MESSAGE_SIZE);
	check_region(region, initiator);
	OK(rpma_send(conn, message_mr, 2 * MESSAGE_SIZE, MESSAGE_SIZE, RPMA_F_COMPLETION_ALWAYS, answer));
	expect_done(SENDS, SEND, answer);

	expect_event(conn, RPMA_CONN_CLOSED);
	OK(rpma_conn_disconnect(conn));
	OK(rpma_conn_delete(&conn));
	OK(rpma_ep_shutdown(&ep));
	OK(rpma_mr_dereg(&message_mr));
	OK(rpma_mr_dereg(&mr));
	OK(rpma_peer_delete(&peer));
	printf("verified: what %d did to %d\n", initiator, RELEASE);
}
