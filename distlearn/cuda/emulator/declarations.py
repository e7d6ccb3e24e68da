"""A .cu file cut into its top-level declarations, with the names that each declares and uses.

This is not a C++ parser. It knows brackets, templates and the macros of the file, which is enough to tell where a
function, a type or a variable begins and ends, whether it belongs to the host or the device, and which others it needs.
Where it cannot tell, it lists too many names rather than too few: an extra name only keeps an extra declaration.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from distlearn.cuda.emulator.source import split_commas

DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.M)
DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+(\w+)(\(([^)]*)\))?(.*)", re.S)
WORD = re.compile(r"[A-Za-z_]\w*")
# Not names of functions, although a bracket follows.
SPECIFIERS = {"__launch_bounds__", "__attribute__", "__align__", "__builtin_align__", "alignas", "decltype", "noexcept",
              "__declspec", "explicit", "requires", "__cluster_dims__", "__block_size__", "__maxnreg__"}  # fmt: skip
DEVICE = {"__global__", "__device__", "__constant__", "__shared__", "__managed__"}
NO_NAME = {"void", "int", "float", "double", "bool", "char", "long", "short", "unsigned", "signed", "return", "if",
           "for", "while", "switch", "sizeof", "defined"}  # fmt: skip
RECORD = re.compile(r"\b(struct|class|union|enum)\b")


@dataclass
class Macro:
    """A macro: its parameters (None if it takes none, not even brackets), its text, and where it is defined."""

    parameters: list[str] | None
    body: str
    at: int = -1


@dataclass
class Declaration:
    """A declaration from `begin` to `end`; `head` is the text before its body, macros expanded.

    `kind` is "function", "type", "variable", "using namespace", "static_assert", "instance" or "other".
    """

    begin: int
    end: int
    kind: str
    head: str
    names: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)

    @property
    def is_kernel(self) -> bool:
        """Whether it is a `__global__` function."""
        return bool(re.search(r"\b__global__\b", self.head))

    @property
    def on_device(self) -> bool:
        """Whether it is marked for the device; a constexpr function is for both."""
        words = set(WORD.findall(self.head))
        return bool(words & DEVICE) or (self.kind == "function" and bool(words & {"constexpr", "consteval"}))


def macros_of(code: str) -> dict[str, Macro]:
    """Return the macros that a text defines, the last definition of each; comments must be blanked."""
    found = {}
    for directive in DIRECTIVE.finditer(code):
        if match := DEFINE.match(directive[0].replace("\\\r\n", " ").replace("\\\n", " ")):
            parameters = [p.strip() for p in match[3].split(",")] if match[2] else None
            found[match[1]] = Macro(parameters, match[4].strip(), directive.start())
    return found


def closing(text: str, at: int) -> int:
    """Return the place after the bracket that closes the one at `at` (the end of the text if none does)."""
    pairs, opened = {")": "(", "]": "[", "}": "{"}, []
    for match in re.compile(r"[()\[\]{}]").finditer(text, at):
        if match[0] in "([{":
            opened.append(match[0])
        elif opened and opened[-1] == pairs[match[0]]:
            opened.pop()
            if not opened:
                return match.end()
    return len(text)


def closing_angle(text: str, at: int) -> int:
    """Return the place after the `>` that closes the `<` at `at`."""
    depth, i = 0, at
    while i < len(text):
        if text[i] in "([{":
            i = closing(text, i) - 1
        elif text[i] == "<":
            depth += 1
        elif text[i] == ">" and text[i - 1] != "-":
            depth -= 1
            if not depth:
                return i + 1
        elif text[i] == ";":
            return i
        i += 1
    return len(text)


def expand(text: str, macros: dict[str, Macro], known=frozenset()) -> str:
    """Return a text with its macros expanded, as far as names and brackets matter: without `#` and `__VA_OPT__`."""
    out, at = [], 0
    for match in WORD.finditer(text):
        if match.start() < at or match[0] not in macros or match[0] in known:
            continue
        macro, end = macros[match[0]], match.end()
        body = macro.body
        if macro.parameters is not None:
            bracket = re.compile(r"\s*\(").match(text, end)
            if not bracket:
                continue
            end = closing(text, bracket.end() - 1)
            given = [a.strip() for a in split_commas(text[bracket.end() : end - 1])]
            body = _substitute(macro, given, macros, known)
        body = re.sub(r"\s*##\s*", "", body)
        out += [text[at : match.start()], expand(body, macros, known | {match[0]})]
        at = end
        if len(out) > 20_000:  # macros that grow without end
            break
    return "".join(out) + text[at:]


def _substitute(macro, given, macros, known):
    names = list(macro.parameters)
    if names and names[-1].endswith("..."):
        fixed = len(names) - 1
        given = [*given[:fixed], ", ".join(given[fixed:])]
        names[-1] = names[-1][:-3].strip() or "__VA_ARGS__"
    values = dict(zip(names, given, strict=False))

    def put(match):
        if match[0] not in values:
            return match[0]
        pasted = "##" in (macro.body[match.start() - 3 : match.start()] + macro.body[match.end() : match.end() + 3])
        return values[match[0]] if pasted else expand(values[match[0]], macros, known)

    return WORD.sub(put, macro.body)


def _without_template(head: str) -> str:
    while match := re.match(r"\s*(?:template\s*(<)|extern\s+template\b)", head):
        if not match[1]:
            return head
        head = head[closing_angle(head, match.start(1)) :]
    return head


def _brackets_removed(head: str) -> str:
    """Remove the specifiers that have brackets: the remaining brackets are those of parameters and initial values."""
    at, out = 0, ""
    for match in WORD.finditer(head):
        if match.start() >= at and match[0] in SPECIFIERS:
            bracket = re.compile(r"\s*\(").match(head, match.end())
            out += head[at : match.start()]
            at = closing(head, bracket.end() - 1) if bracket else match.end()
    return out + head[at:]


def function_name(head: str) -> tuple[str, int] | None:
    """Return the name of the function that a head declares (with its scope) and where its brackets open, or None.

    The place is in `_brackets_removed(_without_template(head))`.
    """
    text = _brackets_removed(_without_template(head))
    if match := re.search(r"\boperator\s*(\(\s*\)|[^\s(\w]+|\w[\w\s*&]*)\s*\(", text):
        return "operator", match.end() - 1
    match = re.search(r"((?:[A-Za-z_]\w*\s*(?:<[^()]*>)?\s*::\s*)*~?[A-Za-z_]\w*)\s*(?:<[^()]*>)?\s*\(", text)
    name = re.sub(r"\s|<.*?>", "", match[1]) if match else ""
    return (name, match.end() - 1) if name and name not in NO_NAME else None


def parameter_list(head: str) -> list[str]:
    """Return the names of the parameters in a function's head."""
    text = _brackets_removed(_without_template(head))
    _, at = function_name(head)
    names = []
    for i, parameter in enumerate(split_commas(text[at + 1 : closing(text, at) - 1])):
        plain = re.sub(r"=.*", "", parameter, flags=re.S).strip()
        word = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", plain)
        names.append(word[1] if word else f"argument {i}")
    return [] if names == ["void"] else names


def split(code: str) -> list[Declaration]:
    """Return the declarations of a text at namespace scope, in order; comments must be blanked."""
    macros = macros_of(code)
    plain = DIRECTIVE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), code)
    found: list[Declaration] = []
    _scope(plain, 0, len(plain), macros, found)
    return found


def _scope(text, at, end, macros, found):
    opening = re.compile(r'\s*(?:inline\s+)?(?:namespace\b[^{};=]*|extern\s*"[^"]*"\s*)\{')
    while at < end:
        if match := re.compile(r"[\s;}]+").match(text, at, end):
            at = match.end()
            continue
        if match := opening.match(text, at, end):
            inner = min(closing(text, match.end() - 1), end)
            _scope(text, match.end(), inner - 1, macros, found)
            at = inner
            continue
        declaration = _read(text, at, end, macros)
        found.append(declaration)
        at = max(declaration.end, at + 1)


def _read(text, at, end, all_macros) -> Declaration:
    macros = {name: macro for name, macro in all_macros.items() if macro.at < at}
    word = WORD.match(text, at, end)
    if word and word[0] in macros and (whole := _whole_macro(text, word, end, macros)):
        return whole
    stop, body, i, head_end = end, False, at, None
    while i < end:
        c = text[i]
        if c == ";":
            stop = i + 1
            break
        if c == "{":
            head = _brackets_removed(_without_template(expand(text[at:i], macros)))
            close = min(closing(text, i), end)
            if head_end is None:
                head_end = i
            if _opens_function(head):
                stop, body = close, True
                break
            i = close
            continue
        if c in "([":
            i = closing(text, i)
            continue
        i += 1
    written = text[at : head_end if head_end is not None else stop]
    inside = {name: macro for name, macro in all_macros.items() if macro.at < stop}
    return _describe(at, stop, expand(written, macros), text[at:stop], body, inside)


def _opens_function(head: str) -> bool:
    """Say whether the `{` after this head is a function's: the head has parameters in brackets and no initial value."""
    before = head.partition("(")[0]
    if "(" not in head or (RECORD.search(before) and not re.search(r"\w+[\s*&]+\w+\s*$", before)):
        return False
    return "=" not in before or "operator" in before


def _whole_macro(text, word, end, macros) -> Declaration | None:
    """Read a macro that expands to whole declarations: KERNEL(add, +), with or without a semicolon."""
    macro, stop = macros[word[0]], word.end()
    if macro.parameters is not None:
        bracket = re.compile(r"\s*\(").match(text, stop, end)
        if not bracket:
            return None
        stop = closing(text, bracket.end() - 1)
    after = re.compile(r"\s*").match(text, stop, end).end()
    expanded = expand(text[word.start() : stop], macros).strip()
    if not expanded.endswith(("}", ";")) and text[after : after + 1] != ";":
        return None
    if not re.search(r"[{};(]", expanded):
        return None
    inner = split(expanded)
    kernels = [d for d in inner if d.is_kernel]
    first = (kernels or [d for d in inner if d.on_device] or inner or [None])[0]
    made = Declaration(word.start(), stop, first.kind if first else "other", " ".join(d.head for d in inner))
    made.names = set().union(*(d.names for d in inner)) if inner else set()
    made.uses = set().union({word[0]}, *(d.uses for d in inner))
    return made


def _describe(at, stop, head, written, body, macros) -> Declaration:
    text = expand(written, macros)
    bare = _without_template(head)
    uses = set(WORD.findall(text)) | set(WORD.findall(written))
    if match := re.match(r"\s*using\s+namespace\s+([\w:\s]+)", bare):
        return Declaration(at, stop, "using namespace", head, {match[1].strip()}, uses)
    if re.match(r"\s*static_assert\b", bare):
        return Declaration(at, stop, "static_assert", head, set(), uses)
    if re.match(r"\s*(extern\s+)?template\b(?!\s*<)", bare):
        return Declaration(at, stop, "instance", head, set(), uses)
    if re.match(r"\s*(typedef|using)\b", bare):
        return Declaration(at, stop, "type", head, _typedef_names(_without_template(text)), uses)
    name = function_name(head) if body or "(" in _brackets_removed(bare).partition("=")[0] else None
    record = RECORD.search(bare)
    if record and not (body and name):
        names = set(WORD.findall(_brackets_removed(bare)[record.end() :].partition(":")[0].partition("{")[0])[:1])
        names |= set(WORD.findall(text.rpartition("}")[2])) if "}" in text else set()
        if record[1] == "enum":
            names |= set(WORD.findall(text.partition("{")[2]))
        if name and "{" not in text:  # a function that returns a struct is declared
            return Declaration(at, stop, "function", head, set(name[0].split("::")), uses)
        return Declaration(at, stop, "type", head, names, uses)
    if name and (body or not re.search(r"[\w\])]\s*=", _brackets_removed(bare))):
        return Declaration(at, stop, "function", head, {name[0].split("::")[-1], *name[0].split("::")[:1]}, uses)
    names = set()
    for part in split_commas(_brackets_removed(_without_template(text)).rstrip("; \n")):
        if match := re.match(r"[^=({\[]*?(\w+)\s*(?:[=({\[;]|$)", part.strip(), re.S):
            names.add(match[1])
    return Declaration(at, stop, "variable" if names else "other", head, names, uses)


def _typedef_names(text: str) -> set[str]:
    if match := re.match(r"\s*using\s+(\w+)\s*=", text):
        return {match[1]}
    if re.match(r"\s*using\b", text):
        return set(WORD.findall(text)[-1:])
    outer = re.sub(r"\{.*\}", " ", text, flags=re.S)
    tag = re.match(r"\s*typedef\s+(?:struct|class|union|enum)\s+(\w+)", text)
    names = {m[1] for m in re.finditer(r"(\w+)\s*(?:\[[^\]]*\]\s*)*[,;]", outer)}
    names |= set(re.findall(r"\(\s*\*\s*(\w+)\s*\)", outer)) | ({tag[1]} if tag else set())
    if re.match(r"\s*typedef\s+enum\b", text):
        names |= set(WORD.findall(text.partition("{")[2]))
    return names
