#!/bin/sh
# What course/README.md tells an instructor to do on the first evening, with one lab and one student: from the release to the grades.
#   tests/first_evening.sh COURSE [LAB]      COURSE is a copy of course/: this writes into it
set -eu
course=$1 lab=${2:-lab01_backprop}
step() {
    began=$(date +%s)
    distlearn course "$@"
    echo "[$(($(date +%s) - began)) s] distlearn course $*"
}
cd "$course"
step release "$lab"
step bundle "$lab.zip" "$lab"
mkdir -p "submitted/ada/$lab" "submitted/bob/$lab"
cp source/"$lab"/*.ipynb "submitted/ada/$lab/"  # solved
cp ../labs/"$lab"/*.ipynb "submitted/bob/$lab/" # untouched
step grade "$lab"
step feedback "$lab"
step grades "$lab" grades.csv
python - <<'PYTHON'
import csv

rows = {row["student"]: row for row in csv.DictReader(open("grades.csv", encoding="utf-8"))}
checks = [name for name in rows["ada"] if name.startswith("check")]
for name in checks:
    print(f"{name}: solved {rows['ada'][name]}, untouched {rows['bob'][name]}")
assert checks and all(float(rows["ada"][name]) > 0 == float(rows["bob"][name]) for name in checks)
PYTHON
