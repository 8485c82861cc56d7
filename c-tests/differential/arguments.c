/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Every function with every combination of valid, NULL, zero and out-of-range arguments: one scenario per
 * function, one observation per combination, each in a separate child that starts with the same objects.
 *
 * The functions are called through one type with nine arguments of a word. The calling conventions of x86-64
 * and aarch64 pass each integer and pointer in a register or a stack slot of eight bytes, so all functions
 * accept that.
 */

#include "names.h"
#include "observe.h"

enum kind {
	END, DEVICE, ADDRESS, SERVICE, LOOKUP, PEER, CONN, SHARED_CONN, EP, CQ, SRQ, CONN_CFG, PEER_CFG, SRQ_CFG, MR, REMOTE,
	REQUEST, PDATA, BUFFER, SIZE, USAGE, MR_DESC, MR_DESC_SIZE, PEER_DESC, PEER_DESC_SIZE, OFFSET, LENGTH, FLAGS, TYPE,
	TIMEOUT, COUNT, BOOLEAN, EIGHT, TOKEN, IMM, ENTRIES, ADVICE, ADVICE_FLAGS, FUNCTION, THRESHOLD, LEVEL,
	/* pointers to pointers to objects that are consumed */
	P_PEER, P_PEER_CFG, P_MR, P_REMOTE, P_CONN_CFG, P_SRQ_CFG, P_SRQ, P_EP, P_REQ, P_IN_REQ, P_CONN,
	/* outputs */
	OUT_OBJ, OUT_INT, OUT_U32, OUT_SIZE, OUT_BOOL, OUT_PTR, OUT_PDATA, OUT_DESC, OUT_WC, OUT_LEVEL,
};

typedef int generic(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t);
enum { MAX_ARGS = 9, CANARY = 0xee };

static const struct row {
	const char *name;
	void (*fn)(void);
	enum kind kinds[MAX_ARGS + 1];
} rows[] = {
#define ROW(f, ...) {#f, (void (*)(void))(f), {__VA_ARGS__, END}}
	ROW(rpma_utils_get_ibv_context, ADDRESS, LOOKUP, OUT_OBJ),
	ROW(rpma_utils_ibv_context_is_odp_capable, DEVICE, OUT_INT),
	ROW(rpma_peer_cfg_new, OUT_OBJ),
	ROW(rpma_peer_cfg_delete, P_PEER_CFG),
	ROW(rpma_peer_cfg_set_direct_write_to_pmem, PEER_CFG, BOOLEAN),
	ROW(rpma_peer_cfg_get_direct_write_to_pmem, PEER_CFG, OUT_BOOL),
	ROW(rpma_peer_cfg_get_descriptor, PEER_CFG, OUT_DESC),
	ROW(rpma_peer_cfg_get_descriptor_size, PEER_CFG, OUT_SIZE),
	ROW(rpma_peer_cfg_from_descriptor, PEER_DESC, PEER_DESC_SIZE, OUT_OBJ),
	ROW(rpma_peer_new, DEVICE, OUT_OBJ),
	ROW(rpma_peer_delete, P_PEER),
	ROW(rpma_mr_reg, PEER, BUFFER, SIZE, USAGE, OUT_OBJ),
	ROW(rpma_mr_dereg, P_MR),
	ROW(rpma_mr_get_descriptor, MR, OUT_DESC),
	ROW(rpma_mr_get_descriptor_size, MR, OUT_SIZE),
	ROW(rpma_mr_get_ptr, MR, OUT_PTR),
	ROW(rpma_mr_get_size, MR, OUT_SIZE),
	ROW(rpma_mr_advise, MR, OFFSET, LENGTH, ADVICE, ADVICE_FLAGS),
	ROW(rpma_mr_remote_from_descriptor, MR_DESC, MR_DESC_SIZE, OUT_OBJ),
	ROW(rpma_mr_remote_get_size, REMOTE, OUT_SIZE),
	ROW(rpma_mr_remote_get_flush_type, REMOTE, OUT_INT),
	ROW(rpma_mr_remote_delete, P_REMOTE),
	ROW(rpma_conn_cfg_new, OUT_OBJ),
	ROW(rpma_conn_cfg_delete, P_CONN_CFG),
	ROW(rpma_conn_cfg_set_timeout, CONN_CFG, TIMEOUT),
	ROW(rpma_conn_cfg_get_timeout, CONN_CFG, OUT_INT),
	ROW(rpma_conn_cfg_set_cq_size, CONN_CFG, COUNT),
	ROW(rpma_conn_cfg_get_cq_size, CONN_CFG, OUT_U32),
	ROW(rpma_conn_cfg_set_rcq_size, CONN_CFG, COUNT),
	ROW(rpma_conn_cfg_get_rcq_size, CONN_CFG, OUT_U32),
	ROW(rpma_conn_cfg_set_sq_size, CONN_CFG, COUNT),
	ROW(rpma_conn_cfg_get_sq_size, CONN_CFG, OUT_U32),
	ROW(rpma_conn_cfg_set_rq_size, CONN_CFG, COUNT),
	ROW(rpma_conn_cfg_get_rq_size, CONN_CFG, OUT_U32),
	ROW(rpma_conn_cfg_set_compl_channel, CONN_CFG, BOOLEAN),
	ROW(rpma_conn_cfg_get_compl_channel, CONN_CFG, OUT_BOOL),
	ROW(rpma_conn_cfg_set_srq, CONN_CFG, SRQ),
	ROW(rpma_conn_cfg_get_srq, CONN_CFG, OUT_OBJ),
	ROW(rpma_srq_cfg_new, OUT_OBJ),
	ROW(rpma_srq_cfg_delete, P_SRQ_CFG),
	ROW(rpma_srq_cfg_set_rq_size, SRQ_CFG, COUNT),
	ROW(rpma_srq_cfg_get_rq_size, SRQ_CFG, OUT_U32),
	ROW(rpma_srq_cfg_set_rcq_size, SRQ_CFG, COUNT),
	ROW(rpma_srq_cfg_get_rcq_size, SRQ_CFG, OUT_U32),
	ROW(rpma_srq_new, PEER, SRQ_CFG, OUT_OBJ),
	ROW(rpma_srq_delete, P_SRQ),
	ROW(rpma_srq_recv, SRQ, MR, OFFSET, LENGTH, TOKEN),
	ROW(rpma_srq_get_rcq, SRQ, OUT_OBJ),
	ROW(rpma_ep_listen, PEER, ADDRESS, SERVICE, OUT_OBJ),
	ROW(rpma_ep_shutdown, P_EP),
	ROW(rpma_ep_get_fd, EP, OUT_INT),
	ROW(rpma_ep_next_conn_req, EP, CONN_CFG, OUT_OBJ),
	ROW(rpma_conn_req_new, PEER, ADDRESS, SERVICE, CONN_CFG, OUT_OBJ),
	ROW(rpma_conn_req_delete, P_REQ),
	ROW(rpma_conn_req_delete, P_IN_REQ),
	ROW(rpma_conn_req_connect, P_REQ, PDATA, OUT_OBJ),
	ROW(rpma_conn_req_connect, P_IN_REQ, PDATA, OUT_OBJ),
	ROW(rpma_conn_req_recv, REQUEST, MR, OFFSET, LENGTH, TOKEN),
	ROW(rpma_conn_req_get_private_data, REQUEST, OUT_PDATA),
	ROW(rpma_conn_get_event_fd, CONN, OUT_INT),
	ROW(rpma_conn_next_event, CONN, OUT_INT),
	ROW(rpma_conn_get_private_data, CONN, OUT_PDATA),
	ROW(rpma_conn_apply_remote_peer_cfg, CONN, PEER_CFG),
	ROW(rpma_conn_disconnect, CONN),
	ROW(rpma_conn_delete, P_CONN),
	ROW(rpma_conn_get_qp_num, CONN, OUT_U32),
	ROW(rpma_conn_get_cq, CONN, OUT_OBJ),
	ROW(rpma_conn_get_rcq, CONN, OUT_OBJ),
	ROW(rpma_conn_get_compl_fd, SHARED_CONN, OUT_INT),
	ROW(rpma_conn_wait, SHARED_CONN, FLAGS, OUT_OBJ, OUT_BOOL),
	ROW(rpma_read, CONN, MR, OFFSET, REMOTE, OFFSET, LENGTH, FLAGS, TOKEN),
	ROW(rpma_write, CONN, REMOTE, OFFSET, MR, OFFSET, LENGTH, FLAGS, TOKEN),
	ROW(rpma_write_with_imm, CONN, REMOTE, OFFSET, MR, OFFSET, LENGTH, FLAGS, IMM, TOKEN),
	ROW(rpma_atomic_write, CONN, REMOTE, OFFSET, EIGHT, FLAGS, TOKEN),
	ROW(rpma_flush, CONN, REMOTE, OFFSET, LENGTH, TYPE, FLAGS, TOKEN),
	ROW(rpma_send, CONN, MR, OFFSET, LENGTH, FLAGS, TOKEN),
	ROW(rpma_send_with_imm, CONN, MR, OFFSET, LENGTH, FLAGS, IMM, TOKEN),
	ROW(rpma_recv, CONN, MR, OFFSET, LENGTH, TOKEN),
	ROW(rpma_cq_get_fd, CQ, OUT_INT),
	ROW(rpma_cq_wait, CQ),
	ROW(rpma_cq_get_wc, CQ, ENTRIES, OUT_WC, OUT_INT),
	ROW(rpma_log_set_function, FUNCTION),
	ROW(rpma_log_set_threshold, THRESHOLD, LEVEL),
	ROW(rpma_log_get_threshold, THRESHOLD, OUT_LEVEL),
#undef ROW
};
enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

/*
 * Two functions have no pointer arguments (values.c); two have two rows, one for each side of a connection.
 */
_Static_assert(ROWS == 0 RPMA_OBJECT_FUNCTIONS(RPMA_COUNT) RPMA_CONNECTION_FUNCTIONS(RPMA_COUNT) - 2 + 2,
		"the functions of 1.x");

/* ---- objects with which all combinations start ---- */

static void *peer, *conn, *shared, *ep, *cq, *srq, *conn_cfg, *peer_cfg, *srq_cfg, *mr, *remote, *req, *in_req;
static unsigned char mr_desc[32], peer_desc[4] = {1};
static const char eight[8] = "\1\2\3\4\5\6\7\10";
static char pdata_bytes[] = "hello";
static struct rpma_conn_private_data pdata_good = {pdata_bytes, 5}, pdata_no_length = {pdata_bytes, 0},
	pdata_no_data = {NULL, 5};
static void *null_object;
static _Alignas(16) unsigned char outputs[MAX_ARGS][256];

static void make_objects(void)
{
	struct rpma_peer_cfg *pcfg = NULL;
	struct rpma_srq_cfg *scfg = NULL;
	struct rpma_cq *main_cq = NULL;

	mock_setup(NULL);
	observe_log();
	peer = fx_peer();
	ep = fx_ep(peer); /* id0: incoming requests refer to it */
	conn = fx_conn(peer, NULL);
	conn_cfg = fx_cfg(10, 10, true, NULL);
	shared = fx_conn(peer, conn_cfg);
	srq = fx_srq(peer, 20);
	mr = fx_mr(peer, 0xff);
	remote = fx_remote(0xff);
	req = fx_req(peer, NULL);
	in_req = fx_incoming(ep, NULL, "greeting");
	rpma_conn_get_cq(conn, &main_cq);
	cq = main_cq;
	rpma_peer_cfg_new(&pcfg);
	peer_cfg = pcfg;
	rpma_srq_cfg_new(&scfg);
	srq_cfg = scfg;
	fx_descriptor(mr_desc, REMOTE_ADDR, REMOTE_SIZE, REMOTE_RKEY, 0x3f);
}

/* ---- the values of a kind ---- */

struct value {
	const char *text; /* NULL: the last one */
	uintptr_t word;
};
#define V(t, w) {t, (uintptr_t)(w)}
#define OBJECT(variable, text) {V(text, &variable), V("NULL", 0)}

/* Objects are accessed through their variables, which are set after this table. */
static const struct {
	enum kind kind;
	bool indirect;
	struct value values[8];
} objects[] = {
	{PEER, true, OBJECT(peer, "peer")}, {CONN, true, OBJECT(conn, "conn")}, {EP, true, OBJECT(ep, "ep")},
	{SHARED_CONN, true, {V("conn", &conn), V("shared", &shared), V("NULL", 0)}},
	{CQ, true, OBJECT(cq, "cq")}, {SRQ, true, OBJECT(srq, "srq")}, {CONN_CFG, true, OBJECT(conn_cfg, "cfg")},
	{PEER_CFG, true, OBJECT(peer_cfg, "pcfg")}, {SRQ_CFG, true, OBJECT(srq_cfg, "scfg")}, {MR, true, OBJECT(mr, "mr")},
	{REMOTE, true, OBJECT(remote, "remote")}, {REQUEST, true, {V("req", &req), V("incoming", &in_req), V("NULL", 0)}},
#define CONSUMED(k, variable, text) {k, false, {V("&" text, &variable), V("&NULL", &null_object), V("NULL", 0)}}
	CONSUMED(P_PEER, peer, "peer"), CONSUMED(P_PEER_CFG, peer_cfg, "pcfg"), CONSUMED(P_MR, mr, "mr"),
	CONSUMED(P_REMOTE, remote, "remote"), CONSUMED(P_CONN_CFG, conn_cfg, "cfg"), CONSUMED(P_SRQ_CFG, srq_cfg, "scfg"),
	CONSUMED(P_SRQ, srq, "srq"), CONSUMED(P_EP, ep, "ep"), CONSUMED(P_REQ, req, "req"),
	CONSUMED(P_IN_REQ, in_req, "incoming"), CONSUMED(P_CONN, conn, "conn"),
#undef CONSUMED
	{ADDRESS, false, {V("address", ADDR), V("NULL", 0)}}, {SERVICE, false, {V("port", PORT), V("NULL", 0)}},
	{LOOKUP, false, {V("local", 0), V("remote", 1), V("2", 2), V("-1", (uint32_t)-1)}},
	{PDATA, false, {V("NULL", 0), V("pdata", &pdata_good), V("{ptr 0}", &pdata_no_length), V("{NULL 5}", &pdata_no_data)}},
	{BUFFER, false, {V("buffer", LOCAL_ADDR), V("NULL", 0)}}, {SIZE, false, {V("32768", LOCAL_SIZE), V("0", 0)}},
	{USAGE, false, {V("0x1", 1), V("0xff", 0xff), V("0", 0), V("0x100", 0x100), V("0x101", 0x101), V("-1", (uint32_t)-1)}},
	{MR_DESC, false, {V("desc", mr_desc), V("NULL", 0)}},
	{MR_DESC_SIZE, false, {V("21", 21), V("22", 22), V("20", 20), V("1", 1), V("0", 0), V("SIZE_MAX", SIZE_MAX)}},
	{PEER_DESC, false, {V("desc", peer_desc), V("NULL", 0)}},
	{PEER_DESC_SIZE, false, {V("1", 1), V("2", 2), V("0", 0), V("SIZE_MAX", SIZE_MAX)}},
	{OFFSET, false, {V("0", 0), V("8", 8), V("3", 3)}}, {LENGTH, false, {V("0", 0), V("64", 64)}},
	{FLAGS, false, {V("always", 3), V("0", 0)}}, {TYPE, false, {V("persistent", 0), V("visibility", 1), V("2", 2)}},
	{TIMEOUT, false, {V("1", 1), V("0", 0), V("-1", (uint32_t)-1), V("INT_MIN", 0x80000000u)}},
	{COUNT, false, {V("7", 7), V("0", 0), V("UINT32_MAX", UINT32_MAX)}}, {BOOLEAN, false, {V("false", 0), V("true", 1)}},
	{EIGHT, false, {V("bytes", eight), V("NULL", 0)}}, {TOKEN, false, {V("token", 0xfedcba9876543210)}},
	{IMM, false, {V("0x01020304", 0x01020304)}},
	{ENTRIES, false, {V("1", 1), V("2", 2), V("0", 0), V("-1", (uint32_t)-1)}},
	{ADVICE, false, {V("0", 0), V("1", 1)}}, {ADVICE_FLAGS, false, {V("0", 0), V("1", 1)}},
	{FUNCTION, false, {V("function", mock_log_function), V("NULL", 0)}},
	{THRESHOLD, false, {V("main", 0), V("aux", 1), V("2", 2), V("-1", (uint32_t)-1)}},
	{LEVEL, false, {V("-1", (uint32_t)-1), V("0", 0), V("5", 5), V("6", 6), V("-2", (uint32_t)-2)}},
};

static const struct value context_values[] = {V("ctx", 0), V("NULL", 0), {NULL, 0}};
static const struct value output_values[] = {V("out", 0), V("NULL", 0), {NULL, 0}};

static const struct value *values_of(enum kind kind)
{
	if (kind == DEVICE)
		return context_values;
	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
		if (objects[i].kind == kind)
			return objects[i].values;
	return output_values;
}

static uintptr_t word_of(enum kind kind, int chosen, int arg)
{
	const struct value *v = values_of(kind) + chosen;

	if (kind == DEVICE)
		return chosen == 0 ? (uintptr_t)CTX : 0;
	if (v >= output_values && v < output_values + 2)
		return chosen == 0 ? (uintptr_t)outputs[arg] : 0;
	for (size_t i = 0; i < sizeof(objects) / sizeof(objects[0]); i++)
		if (objects[i].kind == kind && objects[i].indirect)
			return v->word != 0 ? (uintptr_t)*(void **)v->word : 0;
	return v->word;
}

/* ---- one combination ---- */

struct combination {
	const struct row *row;
	int chosen[MAX_ARGS];
};

static const char *after(const struct combination *c)
{
	static char text[512];
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; c->row->kinds[i] != END; i++) {
		enum kind kind = c->row->kinds[i];
		void *out = outputs[i];
		const char *state = NULL;
		char number[32];
		unsigned char canary[sizeof(outputs[0])];
		memset(canary, CANARY, sizeof(canary));
		if (kind >= P_PEER && kind <= P_CONN) {
			if (c->chosen[i] == 0)
				state = obj(*(void **)values_of(kind)[0].word);
		} else if (kind >= OUT_OBJ && c->chosen[i] == 0) {
			if (memcmp(out, canary, sizeof(canary)) == 0)
				state = "untouched";
			else if (kind == OUT_OBJ)
				state = obj(*(void **)out);
			else if (kind == OUT_DESC)
				state = hex(out, 24);
			else if (kind == OUT_PDATA)
				state = pdata_text(out);
			else {
				snprintf(number, sizeof(number), "%lld", kind == OUT_BOOL ? *(bool *)out : kind == OUT_U32 ?
						*(uint32_t *)out : kind == OUT_SIZE ? (long long)*(size_t *)out :
						kind == OUT_PTR ? (long long)*(intptr_t *)out :
						kind == OUT_WC ? (long long)((struct ibv_wc *)out)->wr_id : *(int *)out);
				state = number;
			}
		}
		if (state != NULL)
			used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used ? ", " : "", state);
	}
	return text;
}

/* Queues the event or completion for which a call would block. */
static void prepare(const char *name)
{
	static const struct ibv_wc wc[2] = {{.wr_id = 77}, {.wr_id = 78}};

	if (strcmp(name, "rpma_ep_next_conn_req") == 0)
		mock_cm_event(RDMA_CM_EVENT_CONNECT_REQUEST, mock_named("id0"), "hi", 2);
	else if (strcmp(name, "rpma_conn_next_event") == 0)
		mock_cm_event(RDMA_CM_EVENT_ESTABLISHED, mock_named("id1"), "hi", 2);
	else if (strcmp(name, "rpma_conn_wait") == 0)
		mock_cq_event(mock_named("cq1"));
	else if (strcmp(name, "rpma_cq_wait") == 0)
		mock_cq_event(mock_named("cq0"));
	else if (strcmp(name, "rpma_cq_get_wc") == 0)
		mock_wc(wc, 2);
}

static void call(void)
{
	const struct combination *c = given;
	generic *fn = (generic *)c->row->fn;
	uintptr_t a[MAX_ARGS] = {0};
	char name[256] = "";
	size_t used = 0;

	prepare(c->row->name);
	memset(outputs, CANARY, sizeof(outputs));
	for (int i = 0; c->row->kinds[i] != END; i++) {
		a[i] = word_of(c->row->kinds[i], c->chosen[i], i);
		used += (size_t)snprintf(name + used, sizeof(name) - used, "%s%s", i ? ", " : "(",
				values_of(c->row->kinds[i])[c->chosen[i]].text);
	}
	snprintf(name + used, sizeof(name) - used, ")");
	CALL_AS(name, fn(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8]), "%s", after(c));
}

void observe_arguments(void)
{
	make_objects();
	for (int r = 0; r < ROWS; r++) {
		struct combination c = {.row = &rows[r]};
		bool more = true;
		while (more) {
			const char *side = rows[r].kinds[0] == P_IN_REQ ? " incoming" : "";
			scenario_as_is(&c, call, "arguments%s %s", side, rows[r].name);
			more = false;
			for (int i = 0; rows[r].kinds[i] != END && !more; i++) {
				if (values_of(rows[r].kinds[i])[c.chosen[i] + 1].text != NULL) {
					c.chosen[i]++;
					more = true;
				} else {
					c.chosen[i] = 0;
				}
			}
		}
	}
}
