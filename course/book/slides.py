"""A deck of slides for a lab, from the lab itself: fifteen minutes at the board.

The question and the goals; for every section its idea, predictions to vote on, each followed by what happened, or else
its first figure; the deliberate failure; the reflection to discuss. Speaker notes are the lab's text around them.
"""

import ast
import re
from itertools import takewhile, zip_longest
from typing import NamedTuple

MOST = 20  # slides
WORDS = 60  # of a section's idea; the rest is in the notes
MATHS = re.compile(r"\$\$.*?\$\$", re.DOTALL)
HANDS_UP = "Hands up before the next slide. Collect the reasons, not the numbers."


class Shown(NamedTuple):
    """What a cell showed when the lab was run: HTML of its first figure, what a prediction was, by question."""

    picture: str = ""
    said: tuple = ()


def deck(lab, shown: dict[str, Shown]) -> str:
    """Return the deck of a lab, a `Source`, as Markdown; `shown` is by cell, and empty where the lab was not run."""
    parts = parts_of(lab)
    title, question, goals, needs = re.split(r"\*\*(?:Question\.|You will be able to|Time\.)\*\*", lab.cells[0].source)
    begin = [[title.strip(), f"**{question.strip()}**", notes(f"The lab takes {needs.strip()}")]]
    begin += [["## Afterwards you can", goals.strip()]]
    asked = re.split(r"^### Question \d+.*$", "\n".join(map(text, parts["Reflection"])), flags=re.MULTILINE)[1:]
    end = [["## Discuss", *(f"{i}. {plain(question.strip())}" for i, question in enumerate(asked, 1))]]
    end += [["## To remember", plain(text(parts["Summary"][0]).partition("**Going further.**")[0].strip())]]

    sections = {name: found for name, found in parts.items() if name[:1].isdigit()}
    votes = {name: votes_of(found, shown) for name, found in sections.items()}
    fails = failure_of(lab, shown)
    room = MOST - len(begin) - len(end) - len(sections) - 1
    taken = []  # the first vote of every section, then every second one, ...
    for vote in filter(None, (vote for row in zip_longest(*votes.values()) for vote in row)):
        if 2 * len(taken) + 2 <= room:
            taken.append(vote)
    middle = []
    for name, found in sections.items():
        middle.append([f"## {name}", idea(found[0]), notes(found[0])])
        mine = [vote for vote in votes[name] if vote in taken]
        middle += [slide for vote in mine for slide in vote]
        if not mine and 2 * len(taken) < room and (seen := figure_of(found, shown)):
            room -= 1
            middle.append(seen)
        if fails and fails[0] in found:
            middle.append(fails[1])
    blocks = [block for slide in [*begin, *middle, *end] for block in slide if block]
    return "\n\n".join(["---\norphan: true\n---", *blocks]) + "\n"


def parts_of(lab) -> dict[str, list]:
    """Return the lab's sections by title: cells of code, and pieces of text as cells of their own would be."""
    found = {"": []}
    for cell in lab.cells[2:]:
        if cell.is_code:
            found[name].append(cell)
            continue
        before, *sections = re.split(r"^## ", cell.source, flags=re.MULTILINE)
        if before.strip() and "hints" not in cell.tags and not cell.is_answer:
            found[name].append(before)
        for section in sections:
            title, _, body = section.partition("\n")
            name = re.sub(r" \(\d+ min\)$", "", title.strip())
            found[name] = [body]
    return found


def text(part) -> str:
    """Return a text up to its exercise; "" of code."""
    return re.split(r"^### Exercise", part, flags=re.MULTILINE)[0].strip() if isinstance(part, str) else ""


def plain(told: str) -> str:
    """Return a text whose links within the course are text, and whose headings are bold."""
    told = re.sub(r"\[([^\]]*)\]\((?!http)[^)]*\)", r"\1", told)
    return re.sub(r"^#+ (.*)$", r"**\1**", told, flags=re.MULTILINE)


def notes(*parts) -> str:
    """Return speaker notes."""
    told = plain("\n\n".join(filter(None, map(text, parts))))
    return f'<aside class="notes">\n\n{told}\n\n</aside>' if told else ""


def idea(part: str) -> str:
    """Return the first paragraphs of a text."""
    kept, words = [], 0
    for paragraph in re.split(r"\n\s*\n", text(part)):
        count = len(MATHS.sub("", paragraph).split())  # a formula belongs to the words before it
        if kept and ((count and words + count > WORDS) or not re.match(r"(?!```)[\w*$`]", paragraph)):
            break
        kept.append(paragraph)
        words += count
    return plain("\n\n".join(kept))


def questions(cell) -> list[tuple[str, str, str]]:
    """Return key, question and possible answers of every prediction that a cell asks for."""
    lists = {n.targets[0].id: n.value for n in ast.walk(cell.tree) if isinstance(n, ast.Assign)}
    found = []
    for call in cell.calls("lab.predict"):
        told = {k.arg: lists.get(getattr(k.value, "id", ""), k.value) for k in call.keywords}
        told = {name: ast.literal_eval(told[name]) for name in ("choices", "low", "high", "unit") if name in told}
        votes = "\n".join(f"- {choice}" for choice in told.get("choices", ()))
        if not votes and {"low", "high"} <= set(told):
            votes = f"from {told['low']} to {told['high']} {told.get('unit', '')}"
        elif not votes and "kind=bool" in ast.unparse(call):
            votes = "yes or no"
        elif not votes:
            votes = f"a number [{told['unit']}]" if "unit" in told else "a number"
        found.append((*map(ast.literal_eval, call.args[:2]), votes))
    return found


def reveals(part) -> set[str]:
    """Return the predictions whose outcome a cell shows."""
    return set() if isinstance(part, str) else {ast.literal_eval(call.args[0]) for call in part.calls("lab.reveal")}


def votes_of(parts: list, shown) -> list[list[list[str]]]:
    """Return two slides for every cell of predictions: the vote, and what happened."""
    found = []
    for i, cell in enumerate(parts):
        asked = questions(cell) if not isinstance(cell, str) and "predict" in cell.tags else []
        keys = {key for key, *_ in asked}
        at = next((j for j, part in enumerate(parts) if j > i and keys & reveals(part)), None)
        if not asked or at is None:
            continue
        vote = [f"**{question}**\n\n{votes}" for _, question, votes in asked]
        seen = shown.get(parts[at].id, Shown())
        below = (part for part in parts[at + 1 :] if not isinstance(part, str))
        below = takewhile(lambda part: "predict" not in part.tags, below)
        figures = [shown.get(part.id, Shown()).picture for part in below]
        said = [f"{question} **{value}**" for question, value in seen.said if question in {q for _, q, _ in asked}]
        answer = [*said, *[*filter(None, [seen.picture, *figures])][:1]] or [outcome(parts[at:])]
        vote = ["## Your vote", *vote, notes(HANDS_UP, *parts[max(0, i - 1) : i])]
        found.append([vote, ["## What happened", *answer, notes(*parts[at + 1 : at + 2])]])
    return found


def outcome(parts: list) -> str:
    """Return what a lab says below a cell that was not run, up to the next vote; else the text of its figure."""
    cell, *rest = parts
    below = takewhile(lambda part: isinstance(part, str) or "predict" not in part.tags, rest)
    if told := next(filter(None, map(text, below)), ""):
        return idea(told)
    alts = [k.value for call in cell.calls("lab.show") for k in call.keywords if k.arg == "alt"]
    return ast.literal_eval(alts[0])


def figure_of(parts: list, shown) -> list[str]:
    """Return a section's first figure as a slide, [] if there is none."""
    for i, part in enumerate(parts):
        if not isinstance(part, str) and (picture := shown.get(part.id, Shown()).picture):
            return ["## What it looks like", picture, notes(*parts[max(0, i - 1) : i], *parts[i + 1 : i + 2])]
    return []


def failure_of(lab, shown) -> tuple | None:
    """Return the first cell that fails on purpose, and its slide: what is run; in the notes what it means."""
    cell = next((cell for cell in lab.cells if "failure" in cell.tags), None)
    if cell is None:
        return None
    said = [f"{what} **{value}**" for what, value in shown.get(cell.id, Shown()).said if what.startswith("It failed")]
    code = cell.source[cell.source.find("with lab.expect") :]
    after = "" if lab.after(cell).is_code else lab.after(cell).source
    return cell, ["## It fails, on purpose", f"```python\n{code}\n```", *said, notes(after)]
