/* SPDX-License-Identifier: BSD-3-Clause */

/* All objects that the observed device has created, by address and by short name. */

#include <inttypes.h>
#include <unistd.h>

#include "mock_impl.h"

enum { MAX_OBJS = 4096, NAMES = 16 };

static struct obj objs[MAX_OBJS];
static int n_objs;

struct obj *obj_adopt(const char *kind, void *ptr, size_t size)
{
	static struct obj overflow;
	int serial = 0;

	if (n_objs == MAX_OBJS) {
		mock_misuse("too many objects");
		return &overflow;
	}
	for (int i = 0; i < n_objs; i++)
		serial += strcmp(objs[i].kind, kind) == 0;
	struct obj *o = &objs[n_objs++];
	memset(o, 0, sizeof(*o));
	snprintf(o->name, sizeof(o->name), "%.8s%d", kind, serial % 100000);
	o->kind = kind;
	o->ptr = ptr;
	o->size = size;
	o->static_storage = true;
	return o;
}

struct obj *obj_new(const char *kind, size_t size)
{
	struct obj *o = obj_adopt(kind, real_calloc(1, size), size);

	o->static_storage = false;
	return o;
}

/* The newest first: an address may have been used before (mapped pages). */
struct obj *obj_find(const void *ptr)
{
	for (int i = n_objs - 1; i >= 0; i--)
		if (objs[i].ptr == ptr)
			return &objs[i];
	return NULL;
}

struct obj *obj_use(const void *ptr, const char *kind)
{
	static struct obj none;
	struct obj *o = obj_find(ptr);

	if (o == NULL || strcmp(o->kind, kind) != 0) {
		mock_misuse("%s is not a %s", nm(ptr), kind);
		return &none;
	}
	if (o->destroyed)
		mock_misuse("%s is used after its destruction", o->name);
	return o;
}

void obj_ref(const void *ptr)
{
	struct obj *o = ptr ? obj_find(ptr) : NULL;

	if (o != NULL)
		o->refs++;
}

void obj_unref(const void *ptr)
{
	struct obj *o = ptr ? obj_find(ptr) : NULL;

	if (o != NULL)
		o->refs--;
}

void obj_destroy(const void *ptr, const char *kind, bool success)
{
	struct obj *o = obj_use(ptr, kind);

	if (o->ptr == NULL)
		return;
	if (o->refs > 0)
		mock_misuse("%s is destroyed while %d others need it", o->name, o->refs);
	if (o->pending > 0)
		mock_misuse("%s is destroyed with %d events not acknowledged", o->name, o->pending);
	o->destroyed++;
	if (success && !o->static_storage)
		memset(o->ptr, 0xa5, o->size);
}

const char *nm(const void *ptr)
{
	static char hex[NAMES][32];
	static unsigned next;

	if (ptr == NULL)
		return "NULL";
	if (ptr == CTX)
		return "ctx";
	struct obj *o = obj_find(ptr);
	if (o != NULL)
		return o->name;
	char *text = hex[next++ % NAMES];
	snprintf(text, sizeof(hex[0]), "0x%" PRIxPTR, (uintptr_t)ptr);
	return text;
}

const char *quoted(const char *s)
{
	static char text[NAMES][80];
	static unsigned next;

	if (s == NULL)
		return "NULL";
	char *out = text[next++ % NAMES];
	snprintf(out, sizeof(text[0]), "\"%s\"", s);
	return out;
}

const char *where(uint64_t addr)
{
	static char text[NAMES][32];
	static unsigned next;
	char *out = text[next++ % NAMES];

	for (int i = n_objs - 1; i >= 0; i--) {
		struct obj *o = &objs[i];
		uint64_t start = (uintptr_t)o->ptr;
		if (strcmp(o->kind, "page") == 0 && addr >= start && addr < start + o->size) {
			snprintf(out, sizeof(text[0]), "%s+%" PRIu64, o->name, addr - start);
			return out;
		}
	}
	snprintf(out, sizeof(text[0]), "0x%" PRIx64, addr);
	return out;
}

void *mock_latest(const char *kind)
{
	for (int i = n_objs - 1; i >= 0; i--)
		if (strcmp(objs[i].kind, kind) == 0)
			return objs[i].ptr;
	return NULL;
}

void *mock_named(const char *name)
{
	for (int i = n_objs - 1; i >= 0; i--)
		if (strcmp(objs[i].name, name) == 0)
			return objs[i].ptr;
	return NULL;
}

void mock_original_leaks(const char *name)
{
	struct obj *o = obj_find(mock_named(name));

	assert_non_null(o);
	o->original_leaks = original();
	if (original() && strcmp(o->kind, "id") == 0) {
		struct rdma_cm_id *id = o->ptr;
		obj_unref(id->channel);
		id->channel = NULL;
	}
}

void objects_forget(void)
{
	for (int i = 0; i < n_objs; i++)
		if (!objs[i].static_storage)
			real_free(objs[i].ptr);
	n_objs = 0;
}

/* Ends a test: everything was destroyed exactly once, every event acknowledged. */
int objects_check(void)
{
	int bad = 0;

	for (int i = 0; i < n_objs; i++) {
		struct obj *o = &objs[i];
		if (o->destroyed != 1 && !(o->original_leaks && o->destroyed == 0)) {
			print_error("%s was destroyed %d times\n", o->name, o->destroyed);
			bad++;
		}
	}
	objects_forget();
	return bad;
}
