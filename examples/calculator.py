"""A language model that learns to ask a calculator, in two turns.

    python examples/calculator.py [UPDATES]

The prompt is a sum such as `7+5`. The model is to write the question `7+5=`, the calculator goes on
with `12`, and the model with the same again. What the calculator wrote stands among the tokens of a
completion; a mask keeps it out of what is learned.
"""

import sys

import numpy as np
import torch
from torch import Tensor

import sharpwave as sw

TOKENIZER = sw.llm.DigitTokenizer()
(EQUALS,) = TOKENIZER.encode("=")


def calculate(question: str) -> str:
    """The answer of the calculator to a question; "" if it is none."""
    parts = question.removesuffix("=").split("+")
    is_sum = question.endswith("=") and len(parts) == 2 and all(map(str.isdecimal, parts))
    return str(sum(map(int, parts))) if is_sum else ""


def ask_and_answer(prompts: sw.llm.Prompts, sampler: sw.llm.Sampler, n: int) -> sw.llm.TokenBatch:
    """A rollout of two turns: a question, what the calculator says, and an answer."""
    asked = sampler.generate(prompts.tokens, n, max_new_tokens=5)
    lengths = [up_to_equals(question) for question in asked]
    questions = [question[:length] for question, length in zip(asked, lengths, strict=True)]
    said = [
        question.new_tensor(TOKENIZER.encode(calculate(TOKENIZER.decode(question.tolist()))))
        for question in questions
    ]
    given = [prompts.tokens[row].to(asked.tokens.device) for row in asked.prompt]
    heard = [torch.cat(parts) for parts in zip(given, questions, said, strict=True)]
    answered = sampler.generate(heard, n=1, max_new_tokens=3)

    drawn = asked.plain_log_probs.split(asked.lengths.tolist())
    more = answered.plain_log_probs.split(answered.lengths.tolist())
    log_probs = [
        torch.cat([first[:length], first.new_full((len(words),), torch.nan), second])
        for first, length, words, second in zip(drawn, lengths, said, more, strict=True)
    ]
    return sw.llm.TokenBatch.of_sequences(
        answered.sequences(),
        torch.tensor([len(prompt) for prompt in given], device=asked.tokens.device),
        sampler_log_probs=torch.cat(log_probs),
        loss_mask=~torch.cat(log_probs).isnan(),  # the tokens that were drawn
        version=asked.version,
    )


def up_to_equals(question: Tensor) -> int:
    """Tokens up to the first `=`, where the calculator speaks; all where there is none."""
    places = (question == EQUALS).nonzero()
    return int(places[0]) + 1 if len(places) else len(question)


def score(prompts: list[str], completions: list[str]) -> list[float]:
    """The share of characters that are right, of question and both answers."""
    wanted = [f"{x}={calculate(x + '=') * 2}" for x in prompts]
    return [
        sum(map(str.__eq__, text, right)) / max(len(text), len(right))
        for text, right in zip(completions, wanted, strict=True)
    ]


def main(updates: int = 100) -> None:
    rng = np.random.default_rng(0)
    prompts = [f"{a}+{b}" for a, b in rng.integers(10, size=(5_000, 2))]
    model = sw.nn.Transformer(vocab_size=TOKENIZER.vocab_size)

    # Demonstrations of both turns show the model what it may do; rewards make it reliable.
    turns = [(x, f"{x}=") for x in prompts[:500]]
    turns += [(f"{x}{x}={calculate(x + '=')}", calculate(f"{x}=")) for x in prompts[:500]]
    rows = [{"prompt": prompt, "completion": completion} for prompt, completion in turns]
    sft = sw.SFT(model, 2e-3, dataset=rows, tokenizer=TOKENIZER, n_examples=64, seed=0)
    print(f"demonstrations: loss {sft.train(n_updates=60)['mean_loss']:.3f}")

    agent = sw.GRPO(
        model,
        reward_fn=score,
        rollout_fn=ask_and_answer,
        prompts=prompts,
        tokenizer=TOKENIZER,
        group_size=16,
        learning_rate=2e-3,
        kl_coef=0.0,
        seed=0,
    )
    for _ in range(5):
        metrics = agent.train(n_updates=max(updates // 5, 1))
        print(f"{agent.timesteps:>5} updates: reward {metrics['mean_reward']:.3f}")
    for prompt in ("7+5", "2+1"):
        print(f"{prompt} -> {agent.predict(prompt)[0]}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
