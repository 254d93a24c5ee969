#!/usr/bin/env python3
"""Joins the summaries of benchmarks into one file and prints it as a table.

    summarize.py OUT.json IN.json...
    summarize.py --markdown IN.json...

The second prints the rows that have a goal as a table of docs/benchmarks.md.
"""

import json
import sys


def cell(value):
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def print_table(rows):
    columns = ["name", "ours", "theirs", "unit", "ratio", "goal", "met"]
    table = [columns] + [[cell(row[c]) for c in columns] for row in rows]
    widths = [max(len(line[i]) for line in table) for i in range(len(columns))]
    for line in table:
        print("  ".join(text.ljust(w) for text, w in zip(line, widths)).rstrip())


def print_markdown(rows):
    print("| what | ours | theirs | unit | ratio | goal | met |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        if row["goal"] != "reported":
            cells = [row["name"], cell(row["ours"]), cell(row["theirs"]),
                     row["unit"], f"{row['ratio']:.2f}", row["goal"],
                     "yes" if row["met"] else "no"]
            print(f"| {' | '.join(cells)} |")


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__.strip())
    out, *inputs = sys.argv[1:]
    rows = []
    for path in inputs:
        with open(path, encoding="utf-8") as file:
            rows += json.load(file)
    if out == "--markdown":
        return print_markdown(rows)
    with open(out, "w", encoding="utf-8") as file:
        json.dump(rows, file, indent=2)
        file.write("\n")
    print_table(rows)
    goals = [row for row in rows if row["goal"] != "reported"]
    missed = sum(not row["met"] for row in goals)
    print(f"\n{len(rows)} figures, {len(goals) - missed} goals met, "
          f"{missed} missed; written to {out}")


if __name__ == "__main__":
    main()
