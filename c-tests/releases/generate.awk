# SPDX-License-Identifier: BSD-3-Clause
#
# awk -v release=RELEASE -v what=WHAT -f generate.awk tables/functions.tsv tables/constants.tsv tables/layouts.tsv
#
# Generates files of a release from the tables. RELEASE is 0.9, 0.10 ... 0.14, 1.0, or "all": everything that
# any of them had, in its latest form. WHAT is one of
#
#   header   its header
#   names    a C file with the table of its functions, for the program of that release
#   stub     a C file that defines its functions; each ends the program that calls it
#   map      the version script with its node, for the library made of the stub
#   node     the name of its node
#   asserts  a file in both C99 and C++17 that compiles only with a header that declares exactly what the tables say
#   types    a C file with a variable for each function, struct and enum, whose debug information holds all types
#   exports  every name with each of its nodes, as nm prints them: @@ marks the default

BEGIN {
	FS = "\t"
	n_releases = split("1.0 0.9 0.10 0.11 0.12 0.13 0.14", releases, " ")
}

/^#/ || NF == 0 { next }

FILENAME ~ /functions\.tsv$/ { fn[++n_fn] = $3; prototype[$3] = $4; fn_first[$3] = $1; fn_last[$3] = $2; next }
FILENAME ~ /constants\.tsv$/ { if (has($1, $2)) add_constant($3, $4, $5); next }
FILENAME ~ /layouts\.tsv$/ { if (has($1, $2)) add_field($3, $4, $5, $6, $7); next }

function number(r,  p) { split(r, p, "."); return p[1] * 100 + p[2] }

function had(r, first, last) { return number(first) <= number(r) && (last == "-" || number(r) <= number(last)) }

function has(first, last) { return release == "all" || had(release, first, last) }

function node(r) { return "LIBRPMA_" (number(r) < 10 ? "1.0" : r) }

function add_constant(kind, name, value) {
	if (kind == "macro") { macro[++n_macro] = name; value_of[name] = value; return }
	if (!(kind in n_of)) enum[++n_enum] = kind
	enumerator[kind, ++n_of[kind]] = name
	value_of[name] = value
	if (value < 0) is_signed[kind] = 1
}

# A later definition replaces an earlier one; the tables are in the order of the releases.
function add_field(type, name, ctype, at, size) {
	if (name == "-") {
		if (!(type in size_of)) struct[++n_struct] = type
		size_of[type] = at
		align_of[type] = size
		return
	}
	field[type, ++n_fields[type]] = name
	ctype_of[type, name] = ctype
	at_of[type, name] = at
	bytes_of[type, name] = size
}

function spaced(ctype) { return ctype (ctype ~ /\*$/ ? "" : " ") }

# Forward declarations of types that the prototypes use and nothing defines.
function opaque(  i, rest, s, seen) {
	for (i = 1; i <= n_fn; i++) {
		rest = prototype[fn[i]]
		while (has(fn_first[fn[i]], fn_last[fn[i]]) && match(rest, /struct rpma_[a-z_]+/)) {
			s = substr(rest, RSTART + 7, RLENGTH - 7)
			rest = substr(rest, RSTART + RLENGTH)
			if (!(s in size_of) && !(s in seen)) print "struct " s ";"
			seen[s] = 1
		}
	}
}

function header(  i, j, s) {
	print "#ifndef LIBRPMA_H\n#define LIBRPMA_H 1\n"
	print "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdbool.h>"
	print "#include <infiniband/verbs.h>\n"
	for (i = 1; i <= n_macro; i++)
		if (macro[i] != "LIBRPMA_H") print "#define " macro[i] " (" value_of[macro[i]] ")"
	for (i = 1; i <= n_enum; i++) {
		print "\nenum " enum[i] " {"
		for (j = 1; j <= n_of[enum[i]]; j++) print "\t" enumerator[enum[i], j] " = " value_of[enumerator[enum[i], j]] ","
		print "};"
	}
	print ""
	opaque()
	for (i = 1; i <= n_struct; i++) {
		s = struct[i]
		print "\nstruct " s " {"
		for (j = 1; j <= n_fields[s]; j++) print "\t" spaced(ctype_of[s, field[s, j]]) field[s, j] ";"
		print "};"
	}
	print "\ntypedef void rpma_log_function(enum rpma_log_level level, const char *file_name, const int line_no,"
	print "\t\tconst char *function_name, const char *message_format, ...);\n"
	for (i = 1; i <= n_fn; i++) if (has(fn_first[fn[i]], fn_last[fn[i]])) print prototype[fn[i]]
	print "\n#endif"
}

function names(  i) {
	print "#include \"program.h\"\n\nconst char release_node[] = \"" node(release) "\";"
	print "const struct name release_names[] = {"
	for (i = 1; i <= n_fn; i++)
		if (has(fn_first[fn[i]], fn_last[fn[i]])) print "\t{\"" fn[i] "\", (void (*)(void))" fn[i] "},"
	print "\t{0}\n};"
}

function stub(  i) {
	print "#include <stdlib.h>\n"
	for (i = 1; i <= n_fn; i++)
		if (has(fn_first[fn[i]], fn_last[fn[i]])) print "void " fn[i] "(void);\nvoid " fn[i] "(void) { abort(); }"
}

function map(  i) {
	print node(release) " {\n\tglobal:"
	for (i = 1; i <= n_fn; i++) if (has(fn_first[fn[i]], fn_last[fn[i]])) print "\t\t" fn[i] ";"
	print "\tlocal:\n\t\t*;\n};"
}

function hold(condition) { print "typedef char holds_" ++n_held "[(" condition ") ? 1 : -1];" }

# C99 has neither static assertions nor type queries: an array of negative size and a pointer of another type
# do not compile in either language.
function asserts(  i, j, s, f, t, p) {
	print "#include <librpma.h>"
	for (i = 1; i <= n_macro; i++) {
		if (value_of[macro[i]] == "NULL") {
			print "void *is_" macro[i] " = " macro[i] ";"
			continue
		}
		hold(macro[i] " == " value_of[macro[i]])
		print "#if " macro[i] " != " value_of[macro[i]] "\n#error " macro[i] "\n#endif"
	}
	for (i = 1; i <= n_enum; i++) {
		hold("sizeof(enum " enum[i] ") == 4")
		print "#ifndef __cplusplus"
		hold("(enum " enum[i] ")-1 " (enum[i] in is_signed ? "<" : ">") " 0")
		print "#endif"
		for (j = 1; j <= n_of[enum[i]]; j++) hold(enumerator[enum[i], j] " == " value_of[enumerator[enum[i], j]])
	}
	for (i = 1; i <= n_struct; i++) {
		s = struct[i]
		hold("sizeof(struct " s ") == " size_of[s])
		print "struct aligned_" s " { char first; struct " s " second; };"
		hold("offsetof(struct aligned_" s ", second) == " align_of[s])
		for (j = 1; j <= n_fields[s]; j++) {
			f = field[s, j]
			t = spaced(ctype_of[s, f]) "*"
			hold("offsetof(struct " s ", " f ") == " at_of[s, f])
			hold("sizeof(((struct " s " *)0)->" f ") == " bytes_of[s, f])
			p = "of_" s "_" f "(struct " s " *p)"
			print t p ";\n" t p " { return &p->" f "; }"
		}
	}
	print "rpma_log_function *is_rpma_log_function = (void (*)(enum rpma_log_level, const char *, const int,"
	print "\t\tconst char *, const char *, ...))0;"
	for (i = 1; i <= n_fn; i++) {
		if (!has(fn_first[fn[i]], fn_last[fn[i]])) continue
		p = prototype[fn[i]]
		sub(fn[i] "\\(", "(*is_" fn[i] ")(", p)
		sub(/;$/, " = " fn[i] ";", p)
		print p
	}
}

function types(  i) {
	print "#include <librpma.h>"
	for (i = 1; i <= n_enum; i++) print "enum " enum[i] " of_" enum[i] ";"
	for (i = 1; i <= n_struct; i++) print "struct " struct[i] " of_" struct[i] ";"
	print "rpma_log_function *of_rpma_log_function;"
	for (i = 1; i <= n_fn; i++)
		if (has(fn_first[fn[i]], fn_last[fn[i]])) print "__typeof__(" fn[i] ") *of_" fn[i] " = " fn[i] ";"
}

function exports(  i, r, n, last, list, line) {
	for (i = 1; i <= n_fn; i++) {
		last = fn_last[fn[i]] == "-" ? "LIBRPMA_1.0" : node(fn_last[fn[i]])
		list = " "
		for (r = 1; r <= n_releases; r++) {
			if (!had(releases[r], fn_first[fn[i]], fn_last[fn[i]])) continue
			n = node(releases[r])
			line = fn[i] (n == last ? "@@" : "@") n
			if (index(list, " " line " ")) continue
			list = list line " "
			print line
		}
	}
}

END {
	if (what == "header") header()
	else if (what == "names") names()
	else if (what == "stub") stub()
	else if (what == "map") map()
	else if (what == "node") print node(release)
	else if (what == "asserts") asserts()
	else if (what == "types") types()
	else if (what == "exports") exports()
	else { print "generate.awk: what is \"" what "\"?" > "/dev/stderr"; exit 2 }
}
