/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * compare TABLE ORIGINAL OURS: two transcripts must agree except for the differences in the table, each of
 * which must occur. A row of the table has four fields, separated by tabs:
 *
 *     names of observations    the original's answer    our answer    why
 *
 * In names and in the original's answer, * matches any text. In our answer, the n-th * is the text that the
 * n-th * of the original's answer matched, as is {n} anywhere; further *s match any text. (none) is the
 * answer of a side without this observation. A row applies to the observations whose name and original's
 * answer match; if two rows apply, either may hold. If our answer begins with ?, the original's answer is
 * permitted, too: for answers that depend on values which are neither in the name nor in the answer.
 */

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STARS = 12, SHOWN = 25, FIELDS = 4 };
static const char none[] = "(none)";

struct observation {
	const char *name;
	const char *answer;
	bool compared;
};

struct transcript {
	struct observation *list;
	size_t n;
	struct observation **sorted;
};

struct row {
	const char *names, *original, *ours, *why;
	int line;
	size_t used;
};

static struct row *rows;
static size_t n_rows;
static size_t n_shown, n_wrong;

static void die(const char *what, const char *name)
{
	fprintf(stderr, "compare: %s %s\n", what, name);
	exit(2);
}

static void *need(void *p)
{
	if (p == NULL)
		die("no memory", "");
	return p;
}

/* ---- reading ---- */

static char *read_file(const char *path)
{
	FILE *f = fopen(path, "r");
	size_t size = 1 << 20, n = 0, got;
	char *text = need(malloc(size));

	if (f == NULL)
		die("cannot read", path);
	while ((got = fread(text + n, 1, size - n - 1, f)) > 0) {
		n += got;
		if (n + 1 == size)
			text = need(realloc(text, size *= 2));
	}
	fclose(f);
	text[n] = '\0';
	return text;
}

static char *next_line(char **rest)
{
	char *line = *rest, *end;

	if (line == NULL || *line == '\0')
		return NULL;
	end = strchr(line, '\n');
	*rest = end != NULL ? end + 1 : NULL;
	if (end != NULL)
		*end = '\0';
	return line;
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(struct observation *const *)a)->name, (*(struct observation *const *)b)->name);
}

static void read_transcript(const char *path, struct transcript *t)
{
	char *rest = read_file(path), *line;
	size_t room = 0;

	memset(t, 0, sizeof(*t));
	while ((line = next_line(&rest)) != NULL) {
		char *tab = strchr(line, '\t');
		if (tab == NULL)
			die("not an observation:", line);
		*tab = '\0';
		if (t->n == room)
			t->list = need(realloc(t->list, (room = room ? 2 * room : 1024) * sizeof(t->list[0])));
		t->list[t->n++] = (struct observation){line, tab + 1, false};
	}
	if (t->n == 0)
		die("nothing in", path);
	t->sorted = need(malloc(t->n * sizeof(t->sorted[0])));
	for (size_t i = 0; i < t->n; i++)
		t->sorted[i] = &t->list[i];
	qsort(t->sorted, t->n, sizeof(t->sorted[0]), by_name);
	for (size_t i = 1; i < t->n; i++)
		if (by_name(&t->sorted[i - 1], &t->sorted[i]) == 0)
			die("observed twice:", t->sorted[i]->name);
}

static struct observation *find(const struct transcript *t, const char *name)
{
	struct observation key = {name, NULL, false}, *p = &key;
	struct observation **found = bsearch(&p, t->sorted, t->n, sizeof(t->sorted[0]), by_name);

	return found != NULL ? *found : NULL;
}

static void read_table(const char *path)
{
	char *rest = read_file(path), *line;
	int number = 0;

	while ((line = next_line(&rest)) != NULL) {
		char *fields[FIELDS], *p = line;
		int n = 0;
		number++;
		if (line[0] == '#' || line[0] == '\0')
			continue;
		for (char *field; (field = strsep(&p, "\t")) != NULL; n++) {
			if (n == FIELDS || *field == '\0')
				die("a row needs four fields:", line);
			fields[n] = field;
		}
		if (n != FIELDS)
			die("a row needs four fields:", line);
		rows = need(realloc(rows, (n_rows + 1) * sizeof(rows[0])));
		rows[n_rows++] = (struct row){fields[0], fields[1], fields[2], fields[3], number, 0};
	}
}

/* ---- matching ---- */

struct capture {
	const char *text;
	size_t n;
};

/*
 * `text` is the pattern with the texts of the original's stars inserted; `next` is the first one not yet
 * inserted.
 */
static bool rewritten(const char *pattern, const char *text, const struct capture *caps, int n_caps, int next)
{
	for (; *pattern != '\0' && *pattern != '*'; pattern++) {
		if (pattern[0] == '{' && isdigit((unsigned char)pattern[1]) && pattern[2] == '}') {
			int n = pattern[1] - '1';
			if (n < 0 || n >= n_caps || strncmp(text, caps[n].text, caps[n].n) != 0)
				return false;
			text += caps[n].n;
			pattern += 2;
		} else if (*pattern != *text++) {
			return false;
		}
	}
	if (*pattern == '\0')
		return *text == '\0';
	if (next < n_caps)
		return strncmp(text, caps[next].text, caps[next].n) == 0 &&
			rewritten(pattern + 1, text + caps[next].n, caps, n_caps, next + 1);
	for (;; text++) {
		if (rewritten(pattern + 1, text, caps, n_caps, next))
			return true;
		if (*text == '\0')
			return false;
	}
}

/* Whether `text` matches `pattern` in such a way that `ours`, unless NULL, matches `our_pattern`. */
static bool matches(const char *pattern, const char *text, const char *our_pattern, const char *ours, struct capture *caps,
		int n_caps)
{
	for (; *pattern != '\0' && *pattern != '*'; pattern++, text++)
		if (*pattern != *text)
			return false;
	if (*pattern == '\0')
		return *text == '\0' && (ours == NULL || rewritten(our_pattern, ours, caps, n_caps, 0));
	if (n_caps == MAX_STARS)
		die("too many *:", pattern);
	for (size_t n = 0;; n++) {
		caps[n_caps] = (struct capture){text, n};
		if (matches(pattern + 1, text + n, our_pattern, ours, caps, n_caps + 1))
			return true;
		if (text[n] == '\0')
			return false;
	}
}

/* ---- comparing ---- */

static bool wrong(const char *what, const char *name, const char *original, const char *ours)
{
	n_wrong++;
	if (n_shown++ < SHOWN)
		printf("%s: %s\n    original: %s\n    ours:     %s\n", what, name, original, ours);
	return false;
}

static bool agree(const char *name, const char *original, const char *ours, size_t *n_listed)
{
	struct capture caps[MAX_STARS];
	const struct row *about = NULL;
	bool may_agree = false;

	for (size_t i = 0; i < n_rows; i++) {
		if (!matches(rows[i].names, name, NULL, NULL, caps, 0) ||
				!matches(rows[i].original, original, NULL, NULL, caps, 0))
			continue;
		const char *listed = rows[i].ours + (rows[i].ours[0] == '?');

		may_agree |= listed != rows[i].ours;
		about = &rows[i];
		if (strcmp(original, ours) != 0 && matches(rows[i].original, original, listed, ours, caps, 0)) {
			rows[i].used++;
			++*n_listed;
			return true;
		}
	}
	if (about == NULL || (may_agree && strcmp(original, ours) == 0))
		return strcmp(original, ours) == 0 || wrong("not listed", name, original, ours);
	if (strcmp(original, ours) == 0)
		return wrong("listed and not different", name, original, ours);
	return wrong("different in another way than listed", name, original, ours);
}

/* The name of the scenario, which includes the injected failures: the text before the first slash. */
static size_t scenario_length(const char *name)
{
	return strcspn(name, "/");
}

int main(int argc, char **argv)
{
	struct transcript original, ours;
	size_t passed = 0, failed = 0, observations = 0, listed = 0;

	if (argc != 4) {
		fprintf(stderr, "usage: compare TABLE ORIGINAL OURS\n");
		return 2;
	}
	read_table(argv[1]);
	read_transcript(argv[2], &original);
	read_transcript(argv[3], &ours);

	for (int side = 0; side < 2; side++) {
		struct transcript *t = side == 0 ? &original : &ours;
		bool good = true, any = false;
		for (size_t i = 0; i < t->n; i++) {
			const char *name = t->list[i].name;
			size_t len = scenario_length(name);
			if (!t->list[i].compared) {
				struct observation *other = side == 0 ? find(&ours, name) : NULL;
				if (other != NULL)
					other->compared = true;
				bool same = side == 0 ? agree(name, t->list[i].answer, other ? other->answer : none, &listed)
						: agree(name, none, t->list[i].answer, &listed);
				good = good && same;
				observations++;
				any = true;
			}
			if (i + 1 < t->n && scenario_length(t->list[i + 1].name) == len &&
					strncmp(name, t->list[i + 1].name, len) == 0)
				continue;
			/*
			 * observations of ours only belong to scenarios that are already counted, unless they
			 * are wrong
			 */
			passed += side == 0 && good;
			failed += any && !good;
			good = true;
			any = false;
		}
	}
	if (n_wrong > SHOWN)
		printf("and %zu more\n", n_wrong - SHOWN);
	for (size_t i = 0; i < n_rows; i++) {
		if (rows[i].used == 0) {
			printf("line %d of the table is about nothing: %s\n", rows[i].line, rows[i].why);
			failed++;
		} else {
			printf("%6zu as listed: %s\n", rows[i].used, rows[i].why);
		}
	}
	printf("%zu observations, %zu of them different as listed, %zu wrong; a test is a scenario with all its failures\n",
			observations, listed, n_wrong);
	printf("%zu passed, %zu failed\n", passed, failed);
	return failed != 0;
}
