#!/usr/bin/awk -f
# SPDX-License-Identifier: BSD-3-Clause
# usage: awk [-v arch=ARCH] [-v others=1] -f nodes.awk TABLE.rs...
#
# Generates the version script of libsoftverbs.so from its tables: a node for each `exports!`, with the names
# of the `fn` lines that follow. With others=1 it prints the additional versions of names as an input file for
# GNU ld: a function that the programs of rdma-core call has a private node, which differs in each generation
# of rdma-core. The oldest node of the C library depends on the architecture ARCH, by default x86_64.

BEGIN {
	FS = "\""
	oldest = arch == "" || arch == "x86_64" ? "GLIBC_2.2.5" : arch ~ /^riscv64/ ? "GLIBC_2.27" : "GLIBC_2.17"
	generations = split("25 33 64 65", generation, " ")
}

/^exports!/ { node = $2 == "GLIBC_2.2.5" ? oldest : $2 }
/^} }/ { node = "" }

/^ +fn / && node != "" {
	name = $0
	sub(/^ +fn /, "", name)
	sub(/\(.*/, "", name)
	names[node] = names[node] "\t\t" name ";\n"
	if (node ~ /PRIVATE/) private[name] = node
}

END {
	for (name in private)
		for (i = 1; i <= generations; i++) {
			further = private[name]
			sub(/[0-9]+$/, generation[i], further)
			if (others) printf "\"%s@%s\" = %s;\n", name, further, name
			else printf "%s {\n};\n", further
		}
	if (others) exit
	for (node in names) printf "%s {\n\tglobal:\n%s};\n", node, names[node]
	print "softverbs {\n\tlocal: *;\n};"
}
