# SPDX-License-Identifier: BSD-3-Clause
#
# The header alone, in C99 and in C++17, against assertions generated from the tables: each constant's value,
# each struct's size, alignment and fields, each prototype.

declare -A LANGUAGES=([C99]="-x c -std=c99" [C++17]="-x c++ -std=c++17")

compiler_of() { # LANGUAGE
	if [ "$1" = C99 ]; then echo "$CC"; else echo "$CXX"; fi
}

# compiles LANGUAGE FILE INCLUDEDIR
compiles() {
	$(compiler_of "$1") ${LANGUAGES[$1]} -Wall -Wextra -pedantic-errors -Werror -fsyntax-only -I"$3" "$2"
}

holds() { # LANGUAGE RELEASE INCLUDEDIR
	generate "$2" asserts >asserts.c
	[ "$(grep -c 'is_rpma_.* = rpma_' asserts.c)" -ge 57 ] || die "there is little to assert"
	compiles "$1" asserts.c "$3"
}

# bites LANGUAGE: with a wrong line in a table, the assertions fail.
bites() {
	local table change
	while read -r table change; do
		cp "$HERE"/tables/*.tsv .
		sed -i "$change" "$table.tsv"
		! cmp -s "$HERE/tables/$table.tsv" "$table.tsv" || die "nothing to change: $change"
		generate all asserts . >asserts.c
		if compiles "$1" asserts.c "$INCLUDEDIR" 2>errors; then die "holds all the same: $change"; fi
		grep -q asserts.c errors || die "another failure: $(cat errors)"
	done <<-'END'
	constants s/-100003/-100013/
	constants s/RPMA_LOG_LEVEL_INFO\t4/RPMA_LOG_LEVEL_INFO\t3/
	constants s/RPMA_CONN_LOST/RPMA_CONN_LOSS/
	layouts s/\timm\tuint32_t\t24/\timm\tuint32_t\t28/
	layouts s/\tlen\tuint8_t/\tlen\tint8_t/
	layouts s/\trpma_completion\t-\t-\t32\t8/\trpma_completion\t-\t-\t24\t8/
	functions s/uint32_t imm/uint64_t imm/
	functions s/const struct rpma_mr_remote \*mr, size_t/struct rpma_mr_remote *mr, size_t/
	functions s/rpma_srq_recv/rpma_srq_receive/g
	END
}

run_header() {
	local language release
	for language in C99 C++17; do
		try "header: holds in $language" 30 holds $language all "$INCLUDEDIR"
		try "header: assertions bite in $language" 60 bites $language
	done
	for release in $RELEASES; do
		try "$release: header is as its tables say" 30 holds C99 "$release" "$OUT/$release"
	done
}
