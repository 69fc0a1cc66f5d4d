"""The cases: each checks itself against float64 before it is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from case import Case, error, uniform
from collect_cases import collect_cases
from replay_cases import buffer_cases, prioritized_buffer_cases, priority_cases, row_cases
from torch import Tensor

from sharpwave.primitives.llm import tensors as llm
from sharpwave.primitives.log_probs import tensors as log_probs
from sharpwave.primitives.returns import plain as plain
from sharpwave.primitives.returns import tensors as returns

GAMMA, LAM = 0.99, 0.95


def gae_case(n_steps: int, n_envs: int, compile_loops: bool, targets: dict[str, float]) -> Case:
    shape = (n_steps, n_envs)
    rewards, values = (torch.randn(shape, device="cuda") for _ in range(2))
    last = torch.randn(n_envs, device="cuda")
    terminated = uniform(*shape) < 0.02
    out = (torch.empty_like(rewards), torch.empty_like(rewards))
    options: Any = {"bootstrap": last, "terminated": terminated, "gamma": GAMMA, "lam": LAM}

    def plainly(rewards: Tensor, values: Tensor, last: Tensor, out: Any) -> None:
        after = plain.successors(values, last, None, None)
        plain.gae(rewards, values, after, terminated, None, GAMMA, LAM, out)

    def check() -> float:
        for tensor in out:
            tensor.fill_(torch.nan)
        returns.gae(rewards, values, **options, out=out)
        wanted = tuple(torch.empty_like(x, dtype=torch.float64) for x in out)
        plainly(rewards.double(), values.double(), last.double(), wanted)
        return max(error(a, b) for a, b in zip(out, wanted, strict=True))

    compiled = torch.compile(plainly) if compile_loops and n_steps <= 128 else None
    return Case(
        f"GAE {n_steps} x {n_envs}",
        lambda: returns.gae(rewards, values, **options, out=out),
        check,
        1e-5,
        bytes=rewards.numel() * 17,
        torch=lambda: plainly(rewards, values, last, out),
        compiled=compiled and (lambda: compiled(rewards, values, last, out)),
        targets=targets,
    )


def vtrace_case(n_steps: int, n_envs: int) -> Case:
    shape = (n_steps, n_envs)
    log_rhos, rewards, values, next_values = (torch.randn(shape, device="cuda") for _ in range(4))
    terminated, truncated = (uniform(*shape) < 0.02 for _ in range(2))
    numbers = (log_rhos, rewards, values)

    def ours(out: Any = None) -> tuple[Tensor, Tensor]:
        return returns.vtrace(
            *numbers,
            next_values=next_values,
            terminated=terminated,
            truncated=truncated,
            gamma=GAMMA,
            out=out,
        )

    def check() -> float:
        wanted = tuple(torch.empty(shape, dtype=torch.float64, device="cuda") for _ in range(2))
        doubles = [x.double() for x in (*numbers, next_values)]
        plain.vtrace(*doubles, terminated, truncated, GAMMA, 1.0, (1.0, 1.0, 1.0), wanted)
        return max(error(a, b) for a, b in zip(ours(), wanted, strict=True))

    spare = (torch.empty_like(rewards), torch.empty_like(rewards))
    bars, ends = (1.0, 1.0, 1.0), (terminated, truncated)
    return Case(
        f"V-trace {n_steps} x {n_envs}",
        lambda: ours(spare),
        check,
        1e-5,
        bytes=rewards.numel() * 26,
        torch=lambda: plain.vtrace(*numbers, next_values, *ends, GAMMA, 1.0, bars, spare),
    )


def walk_cases(n_steps: int, n_envs: int) -> Iterator[Case]:
    shape = (n_steps, n_envs)
    rewards, next_values = (torch.randn(shape, device="cuda") for _ in range(2))
    terminated, truncated = (uniform(*shape) < 0.02 for _ in range(2))
    last = torch.randn(n_envs, device="cuda")
    out = torch.empty_like(rewards)
    ends = (terminated, truncated)

    def check_n_step() -> float:
        wanted = torch.empty_like(rewards, dtype=torch.float64)
        plain.n_step_returns(rewards.double(), next_values.double(), *ends, 5, GAMMA, wanted)
        return error(returns.n_step_returns(rewards, next_values, *ends, 5, GAMMA), wanted)

    def check_discounted() -> float:
        wanted = torch.empty_like(rewards, dtype=torch.float64)
        plain.discounted_returns(rewards.double(), terminated, GAMMA, last, wanted)
        return error(returns.discounted_returns(rewards, terminated, GAMMA, last), wanted)

    yield Case(
        f"5-step returns {n_steps} x {n_envs}",
        lambda: returns.n_step_returns(rewards, next_values, *ends, 5, GAMMA, out=out),
        check_n_step,
        1e-5,
        bytes=rewards.numel() * 14,
        torch=lambda: plain.n_step_returns(rewards, next_values, *ends, 5, GAMMA, out),
    )
    yield Case(
        f"discounted returns {n_steps} x {n_envs}",
        lambda: returns.discounted_returns(rewards, terminated, GAMMA, last, out=out),
        check_discounted,
        1e-5,
        bytes=rewards.numel() * 9,
        torch=lambda: plain.discounted_returns(rewards, terminated, GAMMA, last, out),
    )


def llm_cases(n_rows: int, length: int, compiles: bool) -> Iterator[Case]:
    rewards = torch.randn(n_rows, length, device="cuda")
    log_p = -torch.rand_like(rewards) * 4
    log_q = log_p + 0.1 * torch.randn_like(rewards)
    mask = torch.rand_like(rewards) < 0.9

    def groups(x: Tensor) -> Tensor:
        mean, std = x.mean(1, keepdim=True), x.std(1, correction=0, keepdim=True)
        return torch.where(std < 1e-8, 0.0, (x - mean) / std)

    def kl(p: Tensor, q: Tensor, mask: Tensor) -> Tensor:
        d = p - q
        return torch.where(mask, torch.expm1(-d) + d, 0.0).sum(1)

    fast_groups = torch.compile(groups) if compiles else None
    fast_kl = torch.compile(kl) if compiles else None
    yield Case(
        f"group advantages {n_rows} x {length}",
        lambda: llm.group_advantages(rewards, length),
        lambda: error(llm.group_advantages(rewards, length), groups(rewards.double())),
        1e-5,
        bytes=rewards.numel() * 8,
        torch=lambda: groups(rewards),
        compiled=fast_groups and (lambda: fast_groups(rewards)),
        targets={"fraction": 0.7},
    )
    yield Case(
        f"token KL (k3, mask) {n_rows} x {length}",
        lambda: llm.token_kl(log_p, log_q, estimator="k3", mask=mask),
        lambda: error(
            llm.token_kl(log_p, log_q, estimator="k3", mask=mask),
            kl(log_p.double(), log_q.double(), mask),
        ),
        1e-5,
        bytes=log_p.numel() * 9,
        torch=lambda: kl(log_p, log_q, mask),
        compiled=fast_kl and (lambda: fast_kl(log_p, log_q, mask)),
        targets={"fraction": 0.7},
    )


def log_prob_cases(n_rows: int, n_vocab: int, compiles: bool) -> Iterator[Case]:
    logits = torch.randn(n_rows, n_vocab, device="cuda", dtype=torch.bfloat16)
    tokens = torch.randint(0, n_vocab, (n_rows,), device="cuda")
    gradients = torch.randn(n_rows, device="cuda")
    size = logits.numel() * 2

    def torch_forward(logits: Tensor) -> Tensor:
        return torch.log_softmax(logits.float(), 1).gather(1, tokens[:, None])[:, 0]

    def by_parts(function: Callable[[Tensor, slice], float]) -> float:
        parts = [slice(i, i + 512) for i in range(0, n_rows, 512)]
        return max(function(logits[part], part) for part in parts)

    def check() -> float:
        found = log_probs.selected_log_probs(logits, tokens)

        def one(part: Tensor, which: slice) -> float:
            wanted = torch.log_softmax(part.double(), 1).gather(1, tokens[which, None])[:, 0]
            return error(found[which], wanted)

        return by_parts(one)

    def check_backward() -> float:
        def one(part: Tensor, which: slice) -> float:
            leaf = part.clone().requires_grad_()
            log_probs.selected_log_probs(leaf, tokens[which]).backward(gradients[which])
            wanted = torch.softmax(part.double(), 1).neg_()
            wanted[torch.arange(len(part)), tokens[which]] += 1
            assert leaf.grad is not None
            return error(leaf.grad, wanted * gradients[which, None].double())

        return by_parts(one)

    fast = torch.compile(torch_forward) if compiles else None
    name = f"{n_rows} x {n_vocab} bf16"
    yield Case(
        f"log-probs of tokens {name}, forward",
        lambda: log_probs.selected_log_probs(logits, tokens),
        check,
        1e-5,
        bytes=size,
        torch=lambda: torch_forward(logits),
        compiled=fast and (lambda: fast(logits)),
        graph_calls=3,
        targets={"fraction": 0.8, "memory": 0.01},
        memory_of=size,
    )
    leaf = logits.detach().clone().requires_grad_()
    graph_root = log_probs.selected_log_probs(leaf, tokens)
    plain_leaf = logits.detach().clone().requires_grad_()
    plain_root = torch_forward(plain_leaf)
    in_place_leaf = logits.detach().clone().requires_grad_()

    def backward_of(root: Tensor, leaf: Tensor) -> Tensor:
        return torch.autograd.grad(root, leaf, gradients, retain_graph=True)[0]

    def both_in_place() -> Tensor:
        root = log_probs.selected_log_probs(in_place_leaf, tokens, in_place=True)
        return torch.autograd.grad(root, in_place_leaf, gradients)[0]

    yield Case(
        f"log-probs of tokens {name}, backward",
        lambda: backward_of(graph_root, leaf),
        check_backward,
        1e-2,
        bytes=2 * size,
        torch=lambda: backward_of(plain_root, plain_leaf),
        graph_calls=0,
        targets={"fraction": 0.7},
    )
    yield Case(
        f"log-probs of tokens {name}, forward and backward in place",
        both_in_place,
        check_backward,
        1e-2,
        bytes=3 * size,
        graph_calls=2,
        targets={"memory": 0.01},
        memory_of=size,
    )


def linear_cases(n_rows: int, width: int, n_vocab: int) -> Iterator[Case]:
    hidden = torch.randn(n_rows, width, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(n_vocab, width, device="cuda", dtype=torch.bfloat16) / width**0.5
    tokens = torch.randint(0, n_vocab, (n_rows,), device="cuda")
    gradients = torch.randn(n_rows, device="cuda")
    hidden.requires_grad_()
    weight.requires_grad_()
    flops = 2 * n_rows * width * n_vocab

    def ours() -> Tensor:
        return log_probs.linear_log_probs(hidden, weight, tokens)

    def both() -> Any:
        return torch.autograd.grad(ours(), (hidden, weight), gradients)

    def check() -> float:
        few = slice(0, 256)
        found = log_probs.linear_log_probs(hidden[few], weight, tokens[few])
        exact = hidden[few].detach().double() @ weight.detach().double().T
        return error(found, torch.log_softmax(exact, 1).gather(1, tokens[few, None])[:, 0])

    def check_backward() -> float:
        few = slice(0, 256)
        leaves = [x.detach().double().requires_grad_() for x in (hidden[few], weight)]
        exact = torch.log_softmax(leaves[0] @ leaves[1].T, 1).gather(1, tokens[few, None])[:, 0]
        wanted = torch.autograd.grad(exact, leaves, gradients[few].double())
        part = hidden[few].detach().clone().requires_grad_()
        found = torch.autograd.grad(
            log_probs.linear_log_probs(part, weight, tokens[few]), (part, weight), gradients[few]
        )
        return max(error(a, b) for a, b in zip(found, wanted, strict=True))

    def torch_forward() -> Tensor:
        logits = hidden.detach() @ weight.detach().T
        return torch.log_softmax(logits.float(), 1).gather(1, tokens[:, None])[:, 0]

    name = f"{n_rows} x {width} x {n_vocab} bf16"
    whole = n_rows * n_vocab * 2
    yield Case(
        f"log-probs from hidden states {name}, forward",
        ours,
        check,
        1e-2,
        flops=flops,
        torch=torch_forward,
        graph_calls=1,
        targets={"fraction": 0.6},
        memory_of=whole,
    )
    yield Case(
        f"log-probs from hidden states {name}, forward and backward",
        both,
        check_backward,
        2e-2,
        flops=4 * flops,
        graph_calls=1,
        memory_of=whole,
    )


def all_cases(compiles: bool) -> Iterator[Case]:
    """Every case, made when it is its turn: together they would not fit the device."""
    yield gae_case(128, 4096, compiles, {"graph_ms": 0.010, "eager_ms": 0.03})
    yield gae_case(1024, 1024, False, {"graph_ms": 0.025})
    yield gae_case(128, 65536, False, {"fraction": 0.75})
    yield vtrace_case(128, 4096)
    yield from walk_cases(128, 4096)
    yield from priority_cases(1_000_000, 4096)
    yield from row_cases(1_000_000, 4096, compiles)
    yield from buffer_cases(256, 4096, 4096)
    yield from prioritized_buffer_cases(256, 4096, 4096)
    yield from collect_cases(4096)
    yield from llm_cases(65536, 1024, compiles)
    yield from log_prob_cases(8192, 151_936, compiles)
    yield from linear_cases(8192, 4096, 151_936)
