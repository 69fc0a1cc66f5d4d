"""Small tasks that a tiny language model learns in seconds, without any download."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["TASKS", "DigitTokenizer", "Task"]

DIGITS = "0123456789"
SYMBOLS = [*DIGITS, "+", "=", "<pad>", "<eos>"]


class DigitTokenizer:
    """Turns digits and a few signs into tokens and back, one token for each.

    Attributes:
        eos_token_id: The token that ends a text.
        pad_token_id: The token that fills up.

    Example:
        >>> tokenizer = DigitTokenizer()
        >>> tokenizer.encode("12="), tokenizer.decode([3, 1, 13])
        ([1, 2, 11], '31')
    """

    vocab_size = len(SYMBOLS)
    pad_token_id = SYMBOLS.index("<pad>")
    eos_token_id = SYMBOLS.index("<eos>")

    def encode(self, text: str) -> list[int]:
        """The tokens of a text.

        Raises:
            ValueError: It holds another character.
        """
        for character in text:
            if character not in SYMBOLS:
                raise ValueError(f"text must hold {''.join(SYMBOLS[:12])!r} alone, got {text!r}")
        return [SYMBOLS.index(character) for character in text]

    def decode(self, tokens: Sequence[int], skip_special_tokens: bool = True) -> str:
        """The text of tokens."""
        symbols = (SYMBOLS[int(token)] for token in tokens)
        return "".join(x for x in symbols if not (skip_special_tokens and x.startswith("<")))


@dataclass(frozen=True)
class Task:
    """Prompts, and a score of completions.

    Attributes:
        name: Name of the task.
        says: Description of the task.
        n_tokens: Length of an answer.
        prompt: Makes a prompt.
        answer: The right completion of a prompt; None where many are right.
        score: Score of a completion of a prompt, from 0 to 1.
    """

    name: str
    says: str
    n_tokens: int
    prompt: Callable[[np.random.Generator], str]
    score: Callable[[str, str], float]
    answer: Callable[[str], str] | None = None

    def __reduce__(self) -> Any:
        """Pickled by its name: what makes prompts may be a function without one."""
        return (_task, (self.name,)) if TASKS.get(self.name) is self else super().__reduce__()

    def prompts(self, n: int, seed: int = 0) -> list[str]:
        """Prompts, the same for the same seed."""
        rng = np.random.Generator(np.random.Philox(seed))
        return [self.prompt(rng) for _ in range(n)]

    def examples(self, n: int, seed: int = 0) -> list[dict[str, str]]:
        """Prompts with their answers, as supervised fine-tuning takes them.

        Raises:
            ValueError: Many answers are right.
        """
        answer = self._only_answer()
        return [{"prompt": x, "completion": answer(x)} for x in self.prompts(n, seed)]

    def pairs(self, n: int, seed: int = 0) -> list[dict[str, str]]:
        """Prompts with their answers and with wrong ones, as preferences.

        A wrong answer has the digits of the right one in another order, or other digits where they
        are all the same.

        Raises:
            ValueError: Many answers are right.

        Example:
            >>> TASKS["sort3"].pairs(1)
            [{'prompt': '109=', 'chosen': '019', 'rejected': '190'}]
        """
        answer = self._only_answer()
        rng = np.random.Generator(np.random.Philox([seed, 1]))
        found = []
        for prompt in self.prompts(n, seed):
            chosen = rejected = answer(prompt)
            while rejected == chosen:
                if len(set(chosen)) > 1:
                    rejected = "".join(rng.permutation(list(chosen)))
                else:
                    rejected = "".join(map(str, rng.integers(10, size=len(chosen))))
            found.append({"prompt": prompt, "chosen": chosen, "rejected": rejected})
        return found

    def _only_answer(self) -> Callable[[str], str]:
        if self.answer is None:
            known = [task.name for task in TASKS.values() if task.answer is not None]
            raise ValueError(
                f"task must be one with a single answer to learn from examples: "
                f"{', '.join(known)}; got {self.name}, which many answers fulfill"
            )
        return self.answer

    def reward(self, prompts: Sequence[str], completions: Sequence[str], **_: Any) -> list[float]:
        """Rewards of the completions."""
        return [self.score(p, c) for p, c in zip(prompts, completions, strict=True)]


def _task(name: str) -> Task:
    return TASKS[name]


def _digits(count: int, end: str = "=") -> Callable[[np.random.Generator], str]:
    return lambda rng: "".join(str(x) for x in rng.integers(10, size=count)) + end


def _matches(answer: Callable[[str], str]) -> Callable[[str, str], float]:
    """The share of positions at which a completion is the answer."""

    def score(prompt: str, completion: str) -> float:
        wanted = answer(prompt)
        return sum(a == b for a, b in zip(wanted, completion, strict=False)) / len(wanted)

    return score


def _copied(prompt: str) -> str:
    return prompt[:-1]


def _sorted(prompt: str) -> str:
    return "".join(sorted(prompt[:-1]))


def _sum(prompt: str) -> str:
    return str((int(prompt[0]) + int(prompt[2])) % 10)


def _even(_: str, completion: str) -> float:
    return sum(x in "02468" for x in completion[:8]) / 8


TASKS = {
    task.name: task
    for task in (
        Task("copy4", "repeat four digits", 4, _digits(4), _matches(_copied), _copied),
        Task("sort3", "sort three digits", 3, _digits(3), _matches(_sorted), _sorted),
        Task(
            "mod10",
            "add two digits, modulo 10",
            1,
            lambda rng: "+".join(str(x) for x in rng.integers(10, size=2)) + "=",
            _matches(_sum),
            _sum,
        ),
        Task("even", "write eight even digits", 8, _digits(2), _even),
    )
}
"""By name."""
