"""Every command that the documents show can be typed as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

SHELL = {"console", "bash"}
# Shown, not typed: no command is looked for in these.
OTHER = {
    "text",
    "python",
    "toml",
    "yaml",
    "json",
    "xml",
    "diff",
    "mermaid",
    "markdown",
    "cpp",
    "ini",
}


class DocsError(Exception):
    """A page that cannot be checked, or says what is not so."""


@dataclass(frozen=True)
class Command:
    """A command and where it stands."""

    where: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where} {shlex.join(self.words)}"


def blocks(text: str, page: str) -> list[tuple[int, str, list[str]]]:
    """The fenced blocks: the number of the first line inside, the language, the lines."""
    found: list[tuple[int, str, list[str]]] = []
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        match = re.match(r"^\s*(?:>\s*)*(?:[-*+]\s+|\d+\.\s+)?(`{3,}|~{3,})(.*)$", line)
        if fence:
            if match and match[1].startswith(fence) and not match[2].strip():
                fence = ""
            else:
                found[-1][2].append(line)
        elif match:
            fence, language = match[1], match[2].strip()
            if language not in SHELL | OTHER:
                raise DocsError(
                    f"{page}:{number}: a fence of {language or 'no language'!r}; known are "
                    f"{', '.join(sorted(SHELL | OTHER))}"
                )
            found.append((number + 1, language, []))
    if fence:
        raise DocsError(f"{page}: the last fence is not closed")
    return found


def commands(text: str, page: str) -> list[Command]:
    """The commands in the shell blocks; where lines start with ``$``, the others are output."""
    found = []
    for start, language, lines in blocks(text, page):
        if language not in SHELL:
            continue
        prompts = any(line.lstrip().startswith("$ ") for line in lines)
        typed: list[tuple[int, str]] = []
        going_on = False
        for number, written in enumerate(lines, start=start):
            line = written.strip().removeprefix("> ") if going_on else written.strip()
            if going_on:
                typed[-1] = (typed[-1][0], typed[-1][1] + " " + line)
            elif line and not line.startswith("#") and (line.startswith("$ ") or not prompts):
                typed.append((number, line.removeprefix("$ ")))
            else:
                continue
            going_on = typed[-1][1].endswith("\\")
            typed[-1] = (typed[-1][0], typed[-1][1].removesuffix("\\").strip())
        if not typed:
            raise DocsError(f"{page}:{start}: a {language} block without a command")
        for number, line in typed:
            found.extend(_simple_commands(f"{page}:{number}", line))
    return found


def _simple_commands(where: str, line: str) -> list[Command]:
    """The parts of a line between ``&&``, ``;``, ``|``, without variables set for the command."""
    inner: list[Command] = []
    while match := re.search(r"\$\(([^()]*)\)", line):
        inner.extend(_simple_commands(where, match[1]))
        line = line.replace(match[0], "SUBSTITUTED", 1)
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    lexer.commenters = "#"
    try:
        words = list(lexer)
    except ValueError as error:
        raise DocsError(f"{where}: {line!r} is not a command: {error}") from None
    found: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set(";|&") and word:
            found.append([])
        else:
            found[-1].append(word)
    simple = inner
    for part in found:
        while part and re.match(r"^\w+=", part[0]):
            part.pop(0)
        for number, word in enumerate(part):
            if set(word) <= set("<>"):  # a redirection ends the arguments
                del part[number:]
                break
        if part:
            simple.append(Command(where, tuple(part)))
    return simple


def check(command: Command) -> None:
    """Raise ``DocsError`` for a make target or an option of edgeproof that does not exist."""
    program = Path(command.words[0]).name
    if program == "make":
        _check_make(command)
    elif program == "edgeproof":
        _check_edgeproof(command)


def _check_make(command: Command) -> None:
    if not any(re.fullmatch(r"[\w-]+", word) for word in command.words[1:]):
        raise DocsError(f"{command}: no target is named")
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "-n", *command.words[1:]], cwd=ROOT, env=env, capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    if done.returncode != 0:
        raise DocsError(f"{command}: {done.stderr.strip()}")


@cache
def _help(subcommand: tuple[str, ...]) -> str | None:
    """What ``edgeproof SUBCOMMAND --help`` says, or ``None`` when there is no such command."""
    done = subprocess.run(
        [sys.executable, "-m", "edgeproof", *subcommand, "--help"],
        env={**os.environ, "COLUMNS": "300", "NO_COLOR": "1", "TERM": "dumb"},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    return done.stdout if done.returncode == 0 else None


def _check_edgeproof(command: Command) -> None:
    words = list(command.words[1:])
    if _help(()) is None:
        raise DocsError(f"{command}: edgeproof itself does not run")
    subcommand: tuple[str, ...] = ()
    while words and not words[0].startswith("-"):
        # Every command answers --help whatever stands before it: its name must be in its parent's.
        listed = re.search(
            rf"^\W*{re.escape(words[0])}(\s|$)", _help(subcommand) or "", re.MULTILINE
        )
        if listed is None or _help((*subcommand, words[0])) is None:
            break
        subcommand = (*subcommand, words.pop(0))
    group = "COMMAND" in (_help(subcommand) or "").splitlines()[0]
    if group and words and not words[0].startswith("-"):
        raise DocsError(f"{command}: there is no command {words[0]!r}")
    named = set(re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", _help(subcommand) or "")) | {"--help"}
    for word in words:
        if word == "--":
            break
        option = word.partition("=")[0]
        if re.match(r"--?[A-Za-z]", option) and option not in named:
            raise DocsError(f"{command}: there is no option {option}")


def _of(page: Path) -> list[Command]:
    return commands(page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_of_a_page_can_be_typed(page: Path) -> None:
    for command in _of(page):
        check(command)


def test_the_pages_have_commands() -> None:
    programs = {Path(command.words[0]).name for page in PAGES for command in _of(page)}

    assert "make" in programs


# The checks fire


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("```console\n$ make test\nsomething it prints\n```", [["make", "test"]]),
        ("```bash\n# why\nmake test ARGS='-k a'\n```", [["make", "test", "ARGS=-k a"]]),
        ("```bash\ncd x && CI=1 edgeproof smoke > log\n```", [["cd", "x"], ["edgeproof", "smoke"]]),
        ("```console\n$ edgeproof flows \\\n>   --x a\n```", [["edgeproof", "flows", "--x", "a"]]),
        ("- a list\n  ```bash\n  make fast  # quick\n  ```", [["make", "fast"]]),
        ("```python\nmake(test)\n```", []),
        ("```console\nmake fast\nmake lint\n```", [["make", "fast"], ["make", "lint"]]),
        (
            '```console\n$(edgeproof subjects path base) -c "import torch"\n```',
            [["edgeproof", "subjects", "path", "base"], ["SUBSTITUTED", "-c", "import torch"]],
        ),
        ("~~~bash\nedgeproof flows | head\n~~~", [["edgeproof", "flows"], ["head"]]),
    ],
)  # fmt: skip
def test_commands_are_found(text: str, words: list[list[str]]) -> None:
    assert [list(command.words) for command in commands(text, "page")] == words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```\nmake test\n```", "no language"),
        ("```sh\nmake test\n```", "'sh'"),
        ("```bash title=x\nmake test\n```", "title"),
        ("```bash\nmake test", "not closed"),
        ("```console\n```", "without a command"),
        ("```bash\n# nothing but a comment\n```", "without a command"),
        ("```bash\nmake 'test\n```", "not a command"),
    ],
)
def test_a_page_that_cannot_be_checked_is_an_error(text: str, said: str) -> None:
    with pytest.raises(DocsError, match=said):
        commands(text, "page")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("make smoek", "smoek"),
        ("make", "no target"),
        ("make ARGS=x", "no target"),
        ("edgeproof smok", "no command"),
        ("edgeproof subjects lst", "no command"),
        ("edgeproof smoke --flow x", "no option --flow"),
        ("edgeproof smoke --jsn=x", "no option --jsn"),
        (".venv/bin/edgeproof smoke --nothing", "no option --nothing"),
        ("edgeproof --nothing", "no option --nothing"),
    ],
)
def test_a_command_that_does_not_exist_is_an_error(line: str, said: str) -> None:
    with pytest.raises(DocsError, match=said):
        check(Command("page:1", tuple(shlex.split(line))))


@pytest.mark.parametrize(
    "line",
    [
        "make smoke ARGS=--json=x",
        "edgeproof smoke --flows portable_fp32 --json report.json --workers 2",
        "edgeproof smoke --executorch 1.5.1 --python 3.12 --declare-not-run qnn_fp16=why",
        "edgeproof --help",
        "edgeproof subjects make base qnn",
        "python -m pip install edgeproof",
    ],
)
def test_a_command_that_exists_passes(line: str) -> Any:
    check(Command("page:1", tuple(shlex.split(line))))
