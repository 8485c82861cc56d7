# SPDX-License-Identifier: BSD-3-Clause
#
# This library and the original librpma 1.2.0 of distributions: no symbol or type of it is missing or changed
# here, programs built with it run here, and programs of other releases do not start with it.

ORIGINAL=${ORIGINAL_LIBDIR-}/librpma.so.0

# The installed library could be this one.
is_original() {
	[ -n "$ORIGINAL_LIBDIR" ] && [ -e "$ORIGINAL" ] || return
	describe "$ORIGINAL" | sed -n 's/^FUNCTION //p' >"$SCRATCH/original"
	generate 1.0 map | awk '/rpma_/ { sub(";", "", $1); print $1 "@@LIBRPMA_1.0" }' | cmp -s - "$SCRATCH/original"
}

# Additions only; abidiff must have compared every function of the original.
abi_is_kept() {
	abidiff --no-added-syms "$ORIGINAL" "$LIBDIR/librpma.so.0" || die "abidiff ended with status $?"
	abidiff "$ORIGINAL" "$LIBDIR/librpma.so.0" >report
	grep -q '^Function symbols changes summary: 0 Removed, [1-9][0-9]* Added' report || die "$(cat report)"
	! grep -E '^ *\[[DC]\]' report || die "something was removed or changed"
}

# The same comparison with a library without the node of the original must fail.
abi_change_is_seen() {
	abidiff --no-added-syms "$ORIGINAL" "$OUT/0.14/librpma.so.0" >report
	[ $(($? & 8)) -ne 0 ] || die "abidiff saw nothing"
	grep -q 'summary: 84 Removed' report || die "$(cat report)"
}

# types_of INCLUDEDIR LIBRARY: the types in the debug information of a library built with that header.
types_of() {
	generate 1.0 types >types.c
	$CC -g -fPIC -shared -I"$1" -o "$2" types.c
}

types_are_kept() {
	types_of "$ORIGINAL_INCLUDEDIR" original.so && types_of "$INCLUDEDIR" ours.so || die "cannot be built"
	# all functions, 5 enums, a struct, a function type
	[ "$(readelf --dyn-syms -W ours.so | grep -c ' OBJECT .* of_')" -eq 91 ] || die "not all types are there"
	abidiff --harmless original.so ours.so
}

type_changes_are_seen() {
	local change
	types_of "$ORIGINAL_INCLUDEDIR" original.so || die "cannot be built"
	mkdir changed
	while read -r change; do
		sed "$change" "$INCLUDEDIR/librpma.h" >changed/librpma.h
		! cmp -s "$INCLUDEDIR/librpma.h" changed/librpma.h || die "nothing to change: $change"
		types_of changed changed.so || die "cannot be built: $change"
		if abidiff original.so changed.so >report; then die "not seen: $change"; fi
	done <<-'END'
	s/uint8_t len/uint16_t len/
	s/RPMA_CONN_LOST = 2/RPMA_CONN_LOST = 7/
	s/uint32_t cq_size/uint64_t cq_size/
	END
}

# Built with the original's header and library, the examples require only symbols of the original.
examples_are_built() {
	local program
	rm -rf "$OUT/original-examples"
	make --no-print-directory -s -C "$TOP/examples" OUT="$OUT/original-examples" RPMA_CFLAGS="-I$ORIGINAL_INCLUDEDIR" \
		RPMA_LIBS="-L$ORIGINAL_LIBDIR -lrpma" || die "they cannot be built"
	describe "$ORIGINAL" | sed -n 's/^FUNCTION //p' >has
	for program in "$OUT"/original-examples/*/server "$OUT"/original-examples/*/client; do
		readelf -dW "$program" | grep -q '(NEEDED).*\[librpma\.so\.0\]' || die "$program does not need librpma.so.0"
		! readelf -dW "$program" | grep -E '\((RPATH|RUNPATH)\)' || die "$program names a directory"
		nm -D --undefined-only --with-symbol-versions "$program" |
			awk '/rpma_/ { sub("@@*", "@@", $2); print $2 }' >asked
		[ -s asked ] || die "$program asks for nothing"
		! grep -vxFf has asked || die "$program asks for what the original does not have"
	done
}

# Each line of tools/demo is a test.
examples_run() {
	local line demo=$SCRATCH/demo
	wanted "original: example" || return 0
	timeout -k 3 400 "$TOP/tools/demo" "$(dirname "$LIBDIR")" "$OUT/original-examples" >"$demo" 2>&1 </dev/null
	while IFS= read -r line; do
		case $line in
		"ok "*) echo "ok   original: example ${line#ok  }"; passed=$((passed + 1)) ;;
		"FAIL "*) echo "FAIL original: example ${line#FAIL }"; failed=$((failed + 1)) ;;
		*" passed, "*) ;;
		*) echo "$line" ;;
		esac
	done <"$demo"
	tail -n 1 "$demo" | grep -q '^[1-9][0-9]* passed, [0-9]* failed$' && return
	echo "FAIL original: examples did not run to the end"
	failed=$((failed + 1))
}

run_original() {
	local release node
	if ! is_original; then
		skip "original" "the original librpma 1.2.0 (Debian: librpma-dev) is not installed"
		return
	fi
	if command -v abidiff >/dev/null; then
		try "original: nothing removed or changed" 60 abi_is_kept
		try "original: removals are seen" 60 abi_change_is_seen
		try "original: no type changed" 60 types_are_kept
		try "original: changes of types are seen" 60 type_changes_are_seen
	else
		skip "original: nothing removed or changed" "there is no abidiff (Debian: abigail-tools)"
	fi
	for release in $RELEASES; do
		node=$(generate "$release" node)
		case $release in
		0.9) try "0.9: does not start with the original" 20 does_not_start 0.9 "$ORIGINAL_LIBDIR" \
			"undefined symbol: rpma_" ;;
		1.0) try "1.0: finds every function in the original" 20 finds 1.0 "$ORIGINAL_LIBDIR" ;;
		*) try "$release: does not start with the original" 20 does_not_start "$release" "$ORIGINAL_LIBDIR" \
			"version \`$node' not found" ;;
		esac
	done
	try "original: header is as the tables say, in C99" 30 holds C99 1.0 "$ORIGINAL_INCLUDEDIR"
	try "original: header is as the tables say, in C++17" 30 holds C++17 1.0 "$ORIGINAL_INCLUDEDIR"
	try "original: examples are built" 300 examples_are_built
	examples_run
}
