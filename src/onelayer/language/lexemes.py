"""The words of a formula, and a place among them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from onelayer.errors import FormulaError
from onelayer.language.hints import of_character
from onelayer.names import IDENTIFIER

MAX_CHARACTERS = 200_000  # of a formula that a person or a program writes

# Longer operators stand before their beginnings: ** is not two *.
_TOKEN = re.compile(
    r"(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    rf"|(?P<name>{IDENTIFIER})"
    r"|(?P<op>\*\*|<=|>=|==|!=|[-+*/(),;=:<>\[\]])"
)
# Signs that papers and editors write for ours, each one character for one: columns stay true.
_SAME = str.maketrans("−–·×⋅÷\u00a0\n\t", "--***/   ")


@dataclass(frozen=True, slots=True)
class Lexeme:
    kind: str  # number, name, op, end
    text: str
    column: int  # from 1


def tokenize(text: str, limit: int = MAX_CHARACTERS) -> list[Lexeme]:
    """The tokens of ``text``, an "end" token last; a character outside the language is an error naming its column."""
    if not isinstance(text, str):
        raise FormulaError(f"a formula is text, got {repr(text)[:60]}")
    if len(text) > limit:
        raise FormulaError(f"formula of {len(text):,} characters; at most {limit:,} are read")
    # A carriage return alone is no blank: a terminal shows what stands behind it over what stands before.
    text = text.replace("\r\n", "  ").translate(_SAME)
    tokens, at = [], 0
    while at < len(text):
        if text[at] == " ":
            at += 1
            continue
        found = _TOKEN.match(text, at)
        if found is None:
            raise FormulaError(f"column {at + 1}: {of_character(text[at])}")
        tokens.append(Lexeme(found.lastgroup or "", found.group(), at + 1))
        at = found.end()
    tokens.append(Lexeme("end", "", len(text) + 1))
    return tokens


class Cursor:
    """A place in a row of tokens."""

    def __init__(self, tokens: Sequence[Lexeme]) -> None:
        self.tokens = tokens
        self.at = 0

    @property
    def next(self) -> Lexeme:
        """The token that is looked at."""
        return self.tokens[self.at]

    @property
    def following(self) -> Lexeme:
        """The token after it; the end is followed by itself."""
        return self.tokens[min(self.at + 1, len(self.tokens) - 1)]

    def take(self) -> Lexeme:
        """The token that is looked at, and go on."""
        token = self.next
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return token

    def accept(self, text: str) -> bool:
        """Go on if the next token is this sign."""
        if self.next.kind == "op" and self.next.text == text:
            self.take()
            return True
        return False

    def accept_binding(self) -> Lexeme | None:
        """The name in ``name = ...``, both taken; None where no name is given a meaning."""
        token = self.next
        following = self.following
        if token.kind != "name" or (following.kind, following.text) != ("op", "="):
            return None
        self.take()
        self.take()
        return token

    def error(self, message: str, token: Lexeme | None = None) -> FormulaError:
        """An error at a token, by default at the next one."""
        place = token or self.next
        return FormulaError(f"column {place.column}: {message}")

    def accept_word(self, word: str) -> bool:
        """Go on if the next token is this word."""
        if (self.next.kind, self.next.text) == ("name", word):
            self.take()
            return True
        return False
