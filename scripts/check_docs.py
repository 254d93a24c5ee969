#!/usr/bin/env python3
"""Checks that the documentation says what the repository has.

  scripts/check_docs.py snippets [--write]   each C++ and CMake block in README
      and docs equals its source; --write copies the sources into the blocks
  scripts/check_docs.py errors               each error code has its row in
      docs/errors.md, and there is no other row
  scripts/check_docs.py headers              each public header has its row in
      include/syncnorm/README.md, and there is no other row
  scripts/check_docs.py links                links resolve, to headings too;
      files, scripts, options and presets that are named exist

  --root DIR  the repository, unless it is this one

A block names its source in the line above, by file and snippet:

  <!-- snippet: examples/spawn/main.cpp callback -->

The snippet stands between the lines `// begin: callback` and `// end: callback`
(`# begin:` in CMake), less common indentation and less the lines of other
snippets' marks.
"""
import json
import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
CUT = {"cpp", "c++", "cmake"}
MARK = re.compile(r"\s*(?://|#) (begin|end): (\S+)\s*$")
SOURCE = re.compile(r"<!-- snippet: (\S+) (\S+) -->\s*$")
FENCE = re.compile(r"\s*```(\S*)\s*$")


def pages():
    names = ["README.md", "CONTRIBUTING.md", "include/syncnorm/README.md"]
    found = [ROOT / name for name in names if (ROOT / name).exists()]
    return found + sorted((ROOT / "docs").glob("*.md"))


def snippet(file, name):
    """Returns the text between the marks, or raises ValueError."""
    path = ROOT / file
    if not path.exists():
        raise ValueError(f"there is no file {file}")
    lines, inside, ended = [], False, False
    for line in path.read_text().split("\n"):
        mark = MARK.match(line)
        if mark and mark[2] == name:
            inside, ended = mark[1] == "begin", mark[1] == "end"
        elif inside and not mark:
            lines.append(line)
    if not ended:
        raise ValueError(f"{file} has no snippet {name}")
    return textwrap.dedent("\n".join(lines)).strip("\n")


def check_block(source, language, text):
    """Returns what the block should be; raises ValueError if it has no source."""
    match = SOURCE.match(source)
    if match:
        return snippet(match[1], match[2])
    if language in CUT:
        raise ValueError("no `<!-- snippet: FILE NAME -->` in the line above")
    return text


def check_snippets(write):
    wrong = []
    for page in pages():
        lines = page.read_text().split("\n")
        out, i = [], 0
        while i < len(lines):
            fence = FENCE.match(lines[i])
            out.append(lines[i])
            i += 1
            if not fence:
                continue
            begin = i
            while i < len(lines) and not FENCE.match(lines[i]):
                i += 1
            text = "\n".join(lines[begin:i])
            where = f"{page.relative_to(ROOT)}:{begin}"
            try:
                above = lines[begin - 2] if begin > 1 else ""
                expected = check_block(above, fence[1], text)
                if expected != text and not write:
                    wrong.append(f"{where}: differs from its source, which is\n"
                                 f"{expected}\n(scripts/check_docs.py snippets "
                                 "--write copies it)")
            except ValueError as reason:
                wrong.append(f"{where}: {reason}")
                expected = text
            out.extend(expected.split("\n"))
            if i < len(lines):
                out.append(lines[i])
            i += 1
        if write:
            page.write_text("\n".join(out))
    return wrong


def check_errors():
    header = (ROOT / "include/syncnorm/error.hpp").read_text()
    body = re.search(r"enum class errc[^{]*{(.*?)^};", header, re.S | re.M)[1]
    codes = dict(re.findall(r"^  (\w+) = (\d+),", body, re.M))
    rows = {}
    for line in (ROOT / "docs/errors.md").read_text().split("\n"):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        name = re.fullmatch(r"`(\w+)`", cells[0])
        if line.startswith("|") and name:
            rows.setdefault(name[1], []).append(cells[1:])
    wrong = []
    if len(set(codes.values())) != len(codes):
        wrong.append("error.hpp: a value stands for two codes")
    for code in codes.keys() - {"none"}:
        if code not in rows:
            wrong.append(f"docs/errors.md: no row for {code}")
    for code, found in rows.items():
        if code not in codes:
            wrong.append(f"docs/errors.md: {code} is no code")
        if len(found) > 1:
            wrong.append(f"docs/errors.md: {code} has two rows")
        if len(found[0]) != 3 or not all(found[0]):
            wrong.append(f"docs/errors.md: {code}: expected meaning, cause and "
                         f"what to do, got {found[0]}")
    return wrong


def check_headers():
    folder = ROOT / "include/syncnorm"
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.hpp")}
    public = {name for name in found if "detail/" not in name}
    rows = re.findall(r"^\| `([\w/]+\.hpp)` \| \S", (folder / "README.md")
                      .read_text(), re.M)
    wrong = []
    for name in sorted(public | set(rows)):
        times = rows.count(name)
        if name not in public:
            wrong.append(f"include/syncnorm/README.md: there is no {name}")
        elif times != 1:
            wrong.append(f"include/syncnorm/README.md: expected a row for "
                         f"{name}, got {times}")
    return wrong


def find(page, name):
    """Whether a file is there, by its path from here, from the repository's
    root, from an include folder or from the example that the page is about."""
    folders = [page.parent, ROOT, ROOT / "include", ROOT / "include/syncnorm",
               ROOT / "examples" / page.stem]
    return any((folder / name).exists() for folder in folders)


def anchors(page):
    """What #NAME in a link to the page may be: GitHub's names of its headings."""
    found, inside = set(), False
    for line in page.read_text().split("\n"):
        inside ^= bool(FENCE.match(line))
        heading = re.match(r"#{1,6}\s+(.*?)(?:\s+#+)?\s*$", line)
        if inside or not heading:
            continue
        text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading[1])
        name = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        # Headings with the same name are distinguished by numbers.
        unique, count = name, 0
        while unique in found:
            count += 1
            unique = f"{name}-{count}"
        found.add(unique)
    return found


def check_link(page, link):
    """Returns what is wrong with what stands in parentheses."""
    target, mark, anchor = link.partition("#")
    if "://" in link:
        return None
    to = page.parent / target if target else page
    if not to.exists():
        return f"the link {target} leads nowhere"
    if mark and to.suffix == ".md" and anchor not in anchors(to):
        return f"the link {link}: {to.name} has no such heading"
    return None


def has_option(script, option):
    """Whether a script has it, or the program that it passes options on to."""
    text = (ROOT / script).read_text()
    if script == "scripts/train.sh":
        program = (ROOT / "examples/trainer/run/config.cpp").read_text()
        text += re.sub(r'"([\w-]+)"', r"--\1", program)
    return re.search(re.escape(option) + r"(?![\w-])", text)


def check_command(line):
    """Returns what is wrong with a line of a shell block."""
    words = line.split("#")[0].split()
    if words and words[0].startswith("scripts/"):
        if not (ROOT / words[0]).exists():
            return f"there is no {words[0]}"
        for option in (w for w in words[1:] if w.startswith("--")):
            if not has_option(words[0], option.split("=")[0]):
                return f"{words[0]} has no option {option}"
    if "syncnorm-train" in words:
        # The program that starts it may have options of its own before it.
        mine = words[words.index("syncnorm-train") + 1:]
        for option in (w for w in mine if w.startswith("--")):
            if not has_option("scripts/train.sh", option.split("=")[0]):
                return f"syncnorm-train has no option {option}"
    if "--preset" in words:
        presets = json.loads((ROOT / "CMakePresets.json").read_text())
        names = {x["name"] for x in presets["configurePresets"]}
        if words[words.index("--preset") + 1] not in names:
            return f"no such preset: {line.strip()}"
    return None


def check_links():
    wrong = []
    code = re.compile(r"`((?:[\w-]+/)+[\w.*-]*|[\w/-]+\.(?:sh|py|md|hpp))`")
    for page in pages():
        language = None
        for number, line in enumerate(page.read_text().split("\n"), 1):
            where = f"{page.relative_to(ROOT)}:{number}"
            fence = FENCE.match(line)
            if fence:
                language = fence[1] if language is None else None
                continue
            if language is not None:
                reason = check_command(line) if language == "sh" else None
                if reason:
                    wrong.append(f"{where}: {reason}")
                continue
            for link in re.findall(r"\]\(([^)\s]+)[^)]*\)", line):
                reason = check_link(page, link)
                if reason:
                    wrong.append(f"{where}: {reason}")
            for name in code.findall(line):
                known = name.split("/")[0]
                if (ROOT / known).is_dir() or known == "syncnorm" \
                        or name.endswith((".sh", ".py", ".md", ".hpp")):
                    if known != "build" and not find(page, name.split("*")[0]):
                        wrong.append(f"{where}: there is no {name}")
            for command in re.findall(r"`(scripts/[^\s`]+ [^`]*)`", line):
                reason = check_command(command)
                if reason:
                    wrong.append(f"{where}: {reason}")
    return wrong


def main(arguments):
    global ROOT
    if "--root" in arguments:
        at = arguments.index("--root")
        ROOT = pathlib.Path(arguments[at + 1]).resolve()
        del arguments[at:at + 2]
    if arguments[:1] == ["snippets"] and arguments[1:] in ([], ["--write"]):
        wrong = check_snippets(bool(arguments[1:]))
    elif arguments == ["errors"]:
        wrong = check_errors()
    elif arguments == ["headers"]:
        wrong = check_headers()
    elif arguments == ["links"]:
        wrong = check_links()
    else:
        print(__doc__)
        return 2
    print("\n".join(wrong) or f"{arguments[0]}: nothing is wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
