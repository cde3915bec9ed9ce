"""Puts all mutations into one copy of the code, so that one build serves them all.

A function that a mutation changes gets both bodies. A variable of the environment chooses between them when a test runs:

    fn is_full(&self) -> bool {
        if the mutation is active {
            self.count == 11
        } else {
            self.count == 10
        }
    }
"""

import json
import re

# The variable of the environment that contains the name of the active mutation.
VARIABLE = "DAYBOOK_MUTATION"

# A condition of Rust: whether the mutation is active. A process reads the variable once, so that a loop stays fast.
ACTIVE = (
    "{ static ACTIVE: ::std::sync::LazyLock<bool> = ::std::sync::LazyLock::new(|| "
    f'::std::env::var_os("{VARIABLE}").is_some_and(|name| name == NAME)); *ACTIVE }}'
)

# The tokens that matter for finding function bodies. Comments and literals are tokens because they may contain brackets.
TOKEN = re.compile(
    r"""
      //[^\n]*
    | /\*.*?\*/
    | r(?P<hashes>\#*)".*?"(?P=hashes)
    | "(?:\\.|[^"\\])*"
    | '(?:\\.[^']*|[^'\\])'
    | \bfn\s+(?P<function>\w+)
    | (?P<open>[{(\[])
    | (?P<close>[})\]])
    | (?P<semicolon>;)
    """,
    re.VERBOSE | re.DOTALL,
)


def split(text):
    """Splits Rust code into a list in which every second part is the body of a function, without its braces."""
    parts, start = [], 0
    depth = 0  # How many brackets are open.
    signature = None  # The depth of the signature that is being read.
    body = None  # The depth of the function whose body is being read.
    for token in TOKEN.finditer(text):
        if token["function"] and body is None:
            signature = depth
        elif token["semicolon"] and depth == signature:
            signature = None  # The function of a trait, without a body.
        elif token["open"]:
            if token["open"] == "{" and depth == signature:
                signature, body = None, depth
                parts.append(text[start:token.end()])
                start = token.end()
            depth += 1
        elif token["close"]:
            depth -= 1
            if depth == body:
                body = None
                parts.append(text[start:token.start()])
                start = token.start()
    return [*parts, text[start:]]


def changes_only_bodies(original, mutated):
    """Whether a mutation of a file changes nothing but bodies of functions: only then can it be combined with others."""
    return split(original)[::2] == split(mutated)[::2]


def combine(original, mutated):
    """A file with all its mutations. `mutated` has the text of the file with each of them, by name."""
    parts = split(original)
    bodies = parts[1::2]
    for name in sorted(mutated):
        for index, body in enumerate(split(mutated[name])[1::2]):
            if body != bodies[index]:
                unmutated = parts[2 * index + 1]
                parts[2 * index + 1] = f"if {condition(name)} {{{body}}} else {{{unmutated}}}"
    return "".join(parts)


def condition(name):
    return ACTIVE.replace("NAME", json.dumps(name, ensure_ascii=False))


def mutation_at(text, line, names):
    """The mutation to which a line of a combined file belongs: that of the last condition up to the line, if any."""
    before = "".join(text.splitlines(keepends=True)[:line])
    positions = {name: before.rfind(condition(name)) for name in names}
    last = max(positions, key=positions.get, default=None)
    return last if last is not None and positions[last] >= 0 else None
