#!/bin/sh
# Every command that course/README.md tells an instructor to type, with one lab and four students, in a course made by `new`.
#   tests/first_evening.sh COURSE FOLDER [LAB]      COURSE is copied to FOLDER, which is new or empty
set -eu
source=$1 folder=$2 lab=${3:-lab01_backprop}
short=${lab%%_*} number=${lab%%_*} number=${number#lab}
run() {
    began=$(date +%s)
    "$@"
    echo "[$(($(date +%s) - began)) s] $*"
}
course() { run distlearn course "$@"; }
distlearn doctor || true # what it finds missing, the commands below may not need
course new "$folder" --course "$source"
cd "$folder/course"
course release "$lab"
course bundle labs.zip
course bundle one.zip "$short" --assistants log
if distlearn course bundle one.zip lab99; then exit 1; fi
python -m zipfile -t one.zip

mkdir downloads "downloads/Cem Kaya_34_assignsubmission_file"
cp "source/$lab/$short.ipynb" "downloads/anna smith_$short.ipynb"                      # solved
cp "../labs/$lab/$short.ipynb" "downloads/doeben_LATE_12_1_$short.ipynb"               # untouched
cp "source/$lab/$short.ipynb" "downloads/Cem Kaya_34_assignsubmission_file/$short.ipynb" # in a folder
printf '\357\273\277' | cat - "source/$lab/$short.ipynb" > "downloads/${short}_zoe.ipynb" # of an editor of Windows
course collect "$short" downloads
course grade "$short"
course grade "$lab" --student zoe --force
course mistakes "$lab"
course feedback "$lab"
course grades "$lab" grades.csv
course grades "$lab" canvas.csv --for canvas
course grades "$lab" moodle.csv --for moodle
python - <<'PYTHON'
import csv
from pathlib import Path

rows = {row["student"]: row for row in csv.DictReader(open("grades.csv", encoding="utf-8"))}
assert list(rows) == ["anna-smith", "cem-kaya-34", "doeben-12", "zoe"], list(rows)
solved, untouched = rows["anna-smith"], rows.pop("doeben-12")
checks = [name for name in solved if name.startswith("check")]
for name in checks:
    print(f"{name}: solved {solved[name]}, untouched {untouched[name]}")
assert checks and float(untouched[checks[0]]) == 0 and untouched["late"] == "late"
assert all(float(row[name]) > 0 == float(untouched[name]) for name in checks for row in rows.values())
assert [len(open(name).readlines()) for name in ("canvas.csv", "moodle.csv")] == [6, 5]
pages = {path.parts[1]: path.read_text(encoding="utf-8") for path in Path("feedback").glob("*/*/*.html")}
assert [student for student, page in pages.items() if "Handed in late" in page] == ["doeben-12"], list(pages)
PYTHON

course exam --labs "$number" --minutes 20 --seed 3 exam.md
course staff staff-pages
course jplag "$lab" jplag
run distlearn labs check --fix "source/$lab/$short.ipynb"
run distlearn labs outputs "$lab"
run distlearn labs generate "$lab" --force
if python -c 'import pytest, nbval' 2>/dev/null; then
    run python -m pytest -q --nbval-lax "source/$lab"
    run python -m pytest -q ../tests/course -k "test_anatomy or (test_staff and $number-)"
fi
