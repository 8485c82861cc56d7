# SPDX-License-Identifier: BSD-3-Clause
#
# The dynamic symbols, nodes and dependencies of the library, compared with include/librpma.symbols.

FROZEN=$TOP/include/librpma.symbols

# describe LIBRARY: its soname, dependencies, nodes in order, and exported symbols. The name of the loader,
# and whether it is a dependency, depend on the architecture.
describe() {
	readelf -dW "$1" | sed -n 's/.*(SONAME).*\[\(.*\)\]$/SONAME \1/p'
	readelf -dW "$1" | sed -n -e "s/.*(NEEDED).*\[\(ld-.*\)\]$/NEEDED-$(uname -m) \1/p" \
		-e 's/.*(NEEDED).*\[\(.*\)\]$/NEEDED \1/p' | sort
	readelf -VW "$1" | awk '
		/^Version definition section/ { inside = 1; next }
		/^Version needs section/ { inside = 0 }
		inside && !/Flags: BASE/ && match($0, /Name: [A-Za-z0-9_.]+/) { print "NODE " substr($0, RSTART + 6, RLENGTH - 6) }'
	nm -D --defined-only --with-symbol-versions "$1" |
		awk '$2 == "A" { next } { print ($2 == "T" ? "FUNCTION" : "OTHER-" $2), $3 }' | sort
}

# The file without the lines for other architectures.
frozen() {
	grep -v -e '^#' -e '^$' "$FROZEN" | awk -v machine="NEEDED-$(uname -m)" '!/^NEEDED-/ || $1 == machine'
}

is_as_frozen() {
	describe "$LIBDIR/librpma.so.0" >is
	frozen | diff - is || die "< is in include/librpma.symbols, > in the library"
}

# The same without new symbols, from the tables of the releases: 433 definitions, one default for each of 89
# names.
is_what_releases_had() {
	generate all exports | sort >had
	frozen | sed -n -e '/@LIBRPMA_1\.4$/d' -e 's/^FUNCTION //p' | diff had - || die "< was in a release, > is in include/librpma.symbols"
	[ "$(wc -l <had)" -eq 433 ] || die "$(wc -l <had) definitions"
	[ "$(grep -c @@ had)" -eq 89 ] && [ "$(sed 's/@.*//' had | sort -u | wc -l)" -eq 89 ] || die "not one default each"
	sed 's/.*@//' had | sort | uniq -c | awk '{ print $1, $2 }' >nodes
	printf '%s\n' "71 LIBRPMA_0.10" "69 LIBRPMA_0.11" "68 LIBRPMA_0.12" "69 LIBRPMA_0.13" "68 LIBRPMA_0.14" \
		"88 LIBRPMA_1.0" | diff - nodes || die "other numbers of functions"
	[ "$(frozen | sed -n 's/^NODE //p' | head -n 1)" = LIBRPMA_1.0 ] || die "LIBRPMA_1.0 is not the first node"
}

# Libraries with one function less, one more or another name differ from that of the release.
differences_are_seen() {
	local change
	describe "$OUT/1.0/librpma.so.0" >true
	for change in '/rpma_read;/d' 's/rpma_read;/rpma_reed;/' '/local:/,/\*;/d'; do
		sed "$change" "$OUT/1.0/stub.map" >stub.map
		{ cat "$OUT/1.0/stub.c"; echo 'void added(void); void added(void) { }'; } >stub.c
		$CC -fPIC -shared -o changed.so stub.c -Wl,-soname,librpma.so.0 -Wl,--version-script,stub.map || die "no library"
		describe changed.so >changed
		! cmp -s true changed || die "not seen: $change"
	done
	$CC -fPIC -shared -o changed.so "$OUT/1.0/stub.c" -Wl,-soname,librpma.so.1 -Wl,--version-script,"$OUT/1.0/stub.map"
	describe changed.so >changed
	! cmp -s true changed || die "not seen: another soname"
}

run_frozen() {
	try "frozen: the library" 20 is_as_frozen
	try "frozen: every definition of every release" 20 is_what_releases_had
	try "frozen: differences are seen" 60 differences_are_seen
}
