"""Language models on a CUDA device: steps in graphs, layers without padding."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

from sharpwave.llm import CausalModel, Sampler, TokenBatch, score_all
from sharpwave.llm.slots import Slots
from tests.unit.llm.models import VOCABULARY, hugging_face, make, spread

PROMPTS = [[1, 2, 3], [4, 5], [6] * 7, [3], [9, 8, 7, 6, 5]] * 4
KINDS = ["transformer", "Llama", "Qwen3", "GPTNeoX"]


def model_of(kind: str, **options: Any) -> Any:
    """A model whose heads are as long as kernels take."""
    if kind == "transformer":
        return make(kind).cuda()
    return hugging_face(kind, hidden_size=64, **options).cuda()


def sample(model: Any, **options: Any) -> Any:
    given = {"seed": 3, "stop": [0], "max_rows": 8, **options}
    return Sampler(model, **given).generate(PROMPTS, n=3, max_new_tokens=21)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.0},
        {"top_k": 5, "temperature": 0.8},
        {"top_p": 0.8, "repetition_penalty": 1.3, "logit_bias": {3: 1.0}, "min_tokens": 4},
    ],
    ids=["plain", "greedy", "top-k", "all"],
)
def test_graphs_draw_what_single_steps_draw(
    kind: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(kind)
    replayed: list[int] = []
    monkeypatch.setattr(Slots, "_capture", counted(Slots._capture, replayed))
    found = sample(model, **options)
    assert len(replayed) == 1
    monkeypatch.setattr(Slots, "advance", Slots._step)
    wanted = sample(model, **options)
    assert torch.equal(found.tokens, wanted.tokens)
    assert torch.equal(found.offsets, wanted.offsets)
    assert torch.equal(found.finished, wanted.finished)
    torch.testing.assert_close(found.log_probs, wanted.log_probs, atol=1e-4, rtol=1e-4)


def counted(function: Any, calls: list[int]) -> Any:
    def call(slots: Any) -> None:
        function(slots)
        assert len(slots) in slots._graphs
        calls.append(1)

    return call


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_that_of_the_cpu(kind: str) -> None:
    model = model_of(kind)
    on_device = sample(model, temperature=0.0)
    on_host = sample(model.cpu(), temperature=0.0)
    assert on_device.tokens.tolist() == on_host.tokens.tolist()


def test_graphs_read_weights_where_they_are_now() -> None:
    model = model_of("Llama")
    sampler = Sampler(model, temperature=0.0)
    texts = []
    for change in (lambda: None, lambda: spread(model, -0.5), lambda: replace(model)):
        change()
        texts.append(sampler.generate(PROMPTS, max_new_tokens=9).tokens.tolist())
        assert (
            texts[-1]
            == Sampler(model, temperature=0.0).generate(PROMPTS, max_new_tokens=9).tokens.tolist()
        )
    assert texts[0] != texts[1] != texts[2]


def replace(model: Any) -> None:
    with torch.no_grad():
        for name, parameter in list(model.named_parameters()):
            owner, _, own = name.rpartition(".")
            new = torch.nn.Parameter(parameter.flip(-1).contiguous())
            setattr(model.get_submodule(owner), own, new)


def gradients_of(module: Any, outputs: Any, batch: TokenBatch) -> list[torch.Tensor]:
    """The outputs of a model, and their effect on its weights, in float32."""
    module.zero_grad()
    out = outputs(batch)
    (
        out * torch.linspace(-1, 1, out.numel(), device="cuda", dtype=out.dtype).view_as(out)
    ).sum().backward()
    gradients = [x.grad for x in module.parameters() if x.grad is not None]
    return [x.detach().float().clone() for x in (out, *gradients)]


def errors_of(found: list[torch.Tensor], wanted: list[torch.Tensor]) -> list[float]:
    return [float((x - y).norm() / y.norm()) for x, y in zip(found, wanted, strict=True)]


@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("forgets", [False, True], ids=["whole", "checkpointed"])
def test_packed_sequences_have_the_outputs_and_gradients_of_padded_ones(
    kind: str, forgets: bool
) -> None:
    rows = [torch.arange(n, device="cuda") % VOCABULARY for n in (40, 3, 17, 40)]
    batch = TokenBatch.of_sequences(rows, torch.ones(4, dtype=torch.int64, device="cuda"))
    module = model_of(kind)
    if forgets:
        module.train()
        enable = getattr(module, "activation_checkpointing_enable", None)
        (enable or module.gradient_checkpointing_enable)()
    model = CausalModel.of(module)
    assert model.packs
    exact = gradients_of(module, partial(CausalModel.outputs, model), batch)
    assert max(errors_of(gradients_of(module, model.outputs, batch), exact)) < 1e-4
    module.bfloat16()
    ours = errors_of(gradients_of(module, model.outputs, batch), exact)
    theirs = errors_of(gradients_of(module, partial(CausalModel.outputs, model), batch), exact)
    assert sum(ours) < 1.2 * sum(theirs)  # they round more often


def test_log_probs_of_sampling_are_those_of_scoring() -> None:
    model = model_of("Qwen2").bfloat16()
    written = sample(model, temperature=1.3)
    scored = score_all(
        CausalModel.of(model), TokenBatch.of(written), max_tokens=64, temperature=1.3
    )
    assert (written.plain_log_probs - scored).abs().mean() < 0.02
