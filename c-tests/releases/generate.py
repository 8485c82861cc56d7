#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""generate.py RELEASE WHAT TABLES

Generates a file of a release from functions.tsv, constants.tsv and layouts.tsv in the directory TABLES. RELEASE is
0.9, 0.10 ... 0.14, 1.0, or "all": everything that any of them had, in its latest form. WHAT is one of

  header   its header
  names    a C file with the table of its functions, for the program of that release
  stub     a C file that defines its functions; each ends the program that calls it
  map      the version script with its node, for the library made of the stub
  node     the name of its node
  asserts  a file in both C99 and C++17 that compiles only with a header that declares exactly what the tables say
  types    a C file with a variable for each function, struct and enum, whose debug information holds all types
  exports  every name with each of its nodes, as nm prints them: @@ marks the default
"""

import re
import sys
from pathlib import Path

RELEASES = ["1.0", "0.9", "0.10", "0.11", "0.12", "0.13", "0.14"]


def number(release):
    major, minor = release.split(".")
    return int(major) * 100 + int(minor)


def had(release, first, last):
    return number(first) <= number(release) and (last == "-" or number(release) <= number(last))


def node(release):
    return "LIBRPMA_" + ("1.0" if number(release) < 10 else release)


def spaced(ctype):
    return ctype if ctype.endswith("*") else ctype + " "


class Struct:
    def __init__(self):
        self.size, self.align = 0, 0
        self.fields = {}  # name: type, offset, size


class Release:
    """What a release declares."""

    def __init__(self, release, tables):
        def rows(table):
            for line in (Path(tables) / table).read_text().splitlines():
                if line and not line.startswith("#"):
                    yield line.split("\t")

        def has(first, last):
            return release == "all" or had(release, first, last)

        self.release = release
        self.every = {name: (prototype, first, last) for first, last, name, prototype in rows("functions.tsv")}
        self.functions = {name: prototype for name, (prototype, first, last) in self.every.items() if has(first, last)}
        self.macros, self.enums, self.structs = {}, {}, {}
        for first, last, kind, name, value in rows("constants.tsv"):
            if has(first, last):
                (self.macros if kind == "macro" else self.enums.setdefault(kind, {}))[name] = value
        # A later definition replaces an earlier one; the tables are in the order of the releases.
        for first, last, name, field, ctype, at, size in rows("layouts.tsv"):
            if not has(first, last):
                continue
            struct = self.structs.setdefault(name, Struct())
            if field == "-":
                struct.size, struct.align = at, size
            else:
                struct.fields[field] = ctype, at, size

    def opaque(self):
        """Types that the prototypes use and nothing defines."""
        used = re.findall(r"struct (rpma_[a-z_]+)", "\n".join(self.functions.values()))
        return [name for name in dict.fromkeys(used) if name not in self.structs]

    def header(self):
        yield "#ifndef LIBRPMA_H\n#define LIBRPMA_H 1\n"
        yield "#include <stddef.h>\n#include <stdint.h>\n#include <stdio.h>\n#include <stdbool.h>"
        yield "#include <infiniband/verbs.h>\n"
        for name, value in self.macros.items():
            if name != "LIBRPMA_H":
                yield f"#define {name} ({value})"
        for enum, values in self.enums.items():
            yield f"\nenum {enum} {{"
            for name, value in values.items():
                yield f"\t{name} = {value},"
            yield "};"
        yield ""
        for name in self.opaque():
            yield f"struct {name};"
        for name, struct in self.structs.items():
            yield f"\nstruct {name} {{"
            for field, (ctype, _, _) in struct.fields.items():
                yield f"\t{spaced(ctype)}{field};"
            yield "};"
        yield "\ntypedef void rpma_log_function(enum rpma_log_level level, const char *file_name, const int line_no,"
        yield "\t\tconst char *function_name, const char *message_format, ...);\n"
        yield from self.functions.values()
        yield "\n#endif"

    def names(self):
        yield f'#include "program.h"\n\nconst char release_node[] = "{node(self.release)}";'
        yield "const struct name release_names[] = {"
        for name in self.functions:
            yield f'\t{{"{name}", (void (*)(void)){name}}},'
        yield "\t{0}\n};"

    def stub(self):
        yield "#include <stdlib.h>\n"
        for name in self.functions:
            yield f"void {name}(void);\nvoid {name}(void) {{ abort(); }}"

    def map(self):
        yield f"{node(self.release)} {{\n\tglobal:"
        for name in self.functions:
            yield f"\t\t{name};"
        yield "\tlocal:\n\t\t*;\n};"

    def node(self):
        yield node(self.release)

    def asserts(self):
        # C99 has neither static assertions nor type queries: an array of negative size and a pointer of
        # another type do not compile in either language.
        count = 0

        def hold(condition):
            nonlocal count
            count += 1
            return f"typedef char holds_{count}[({condition}) ? 1 : -1];"

        yield "#include <librpma.h>"
        for name, value in self.macros.items():
            if value == "NULL":
                yield f"void *is_{name} = {name};"
                continue
            yield hold(f"{name} == {value}")
            yield f"#if {name} != {value}\n#error {name}\n#endif"
        for enum, values in self.enums.items():
            is_signed = any(int(value) < 0 for value in values.values())
            yield hold(f"sizeof(enum {enum}) == 4")
            yield "#ifndef __cplusplus"
            yield hold(f"(enum {enum})-1 {'<' if is_signed else '>'} 0")
            yield "#endif"
            for name, value in values.items():
                yield hold(f"{name} == {value}")
        for name, struct in self.structs.items():
            yield hold(f"sizeof(struct {name}) == {struct.size}")
            yield f"struct aligned_{name} {{ char first; struct {name} second; }};"
            yield hold(f"offsetof(struct aligned_{name}, second) == {struct.align}")
            for field, (ctype, at, size) in struct.fields.items():
                pointer, function = spaced(ctype) + "*", f"of_{name}_{field}(struct {name} *p)"
                yield hold(f"offsetof(struct {name}, {field}) == {at}")
                yield hold(f"sizeof(((struct {name} *)0)->{field}) == {size}")
                yield f"{pointer}{function};\n{pointer}{function} {{ return &p->{field}; }}"
        yield "rpma_log_function *is_rpma_log_function = (void (*)(enum rpma_log_level, const char *, const int,"
        yield "\t\tconst char *, const char *, ...))0;"
        for name, prototype in self.functions.items():
            declared = prototype.replace(f"{name}(", f"(*is_{name})(", 1)
            yield re.sub(r";$", f" = {name};", declared)

    def types(self):
        yield "#include <librpma.h>"
        for kind, names in (("enum", self.enums), ("struct", self.structs)):
            for name in names:
                yield f"{kind} {name} of_{name};"
        yield "rpma_log_function *of_rpma_log_function;"
        for name in self.functions:
            yield f"__typeof__({name}) *of_{name} = {name};"

    def exports(self):
        for name, (_, first, last) in self.every.items():
            default = node("1.0" if last == "-" else last)
            for each in dict.fromkeys(node(release) for release in RELEASES if had(release, first, last)):
                yield f"{name}{'@@' if each == default else '@'}{each}"


FILES = ("header", "names", "stub", "map", "node", "asserts", "types", "exports")


def main(arguments):
    if len(arguments) != 3 or arguments[1] not in FILES:
        print(__doc__, end="", file=sys.stderr)
        return 2
    release, what, tables = arguments
    print("\n".join(getattr(Release(release, tables), what)()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
