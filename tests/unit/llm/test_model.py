"""One face for every language model: references, adapters, heads."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from sharpwave.llm import CausalModel, Sampler, TokenBatch
from sharpwave.llm.attention import SequenceAttention
from sharpwave.llm.llama import LlamaLayers
from sharpwave.llm.llama_gradient import run_layer
from sharpwave.nn.transformer import Transformer
from tests.unit.llm.models import VOCABULARY, hugging_face, make, spread

IDS = torch.arange(2, 12).view(2, 5)


@pytest.mark.long(only=["Llama"])
@pytest.mark.parametrize("kind", ["transformer", "plain", "Llama"])
def test_a_reference_does_not_follow_what_is_learned(kind: str) -> None:
    model = CausalModel.of(make(kind))
    before = model.logits(IDS).detach()
    reference = model.reference()
    assert not any(parameter.requires_grad for parameter in reference.module.parameters())
    spread(model.module, 0.5)
    assert torch.equal(reference.logits(IDS), before)
    assert not torch.equal(model.logits(IDS), before)


# PEFT asks transformers for an attribute by its old name.
OLD_NAMES = pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated")


def adapted() -> Any:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    return peft.get_peft_model(hugging_face(), config)


@pytest.mark.long
@OLD_NAMES
def test_the_reference_of_an_adapter_is_the_model_without_it() -> None:
    module = adapted()
    model = CausalModel.of(module)
    with module.disable_adapter():
        without = module(IDS).logits
    reference = model.reference()
    assert reference.module is module
    assert torch.equal(reference.logits(IDS), without)
    assert reference.head_weight is not None
    torch.testing.assert_close(reference.hidden(IDS) @ reference.head_weight.T, without)
    assert not torch.equal(model.logits(IDS), without)
    assert torch.equal(model.logits(IDS), module(IDS).logits)


@pytest.mark.long
@OLD_NAMES
def test_an_adapter_is_sampled_from() -> None:
    module = adapted()
    ours = Sampler(module, temperature=0).generate(IDS, max_new_tokens=6)
    theirs = module.generate(input_ids=IDS, max_new_tokens=6, do_sample=False)
    for row, text in zip(ours.sequences(), theirs, strict=True):
        assert text[: len(row)].tolist() == row.tolist()


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "has_head"), [("Llama", True), ("Cohere", False), ("Phi", False), ("Qwen3", True)]
)
def test_a_head_is_used_where_it_makes_the_logits(kind: str, has_head: bool) -> None:
    """Some models scale their logits, or add to them."""
    model = CausalModel.of(hugging_face(kind, **({"logit_scale": 0.5} if kind == "Cohere" else {})))
    head = model.head_weight
    assert (head is not None) == has_head
    if head is not None:
        logits = model.hidden(IDS) @ head.T
        torch.testing.assert_close(logits, model.logits(IDS), atol=1e-5, rtol=1e-5)


@pytest.mark.long
def test_what_ends_a_text_is_asked_of_the_model() -> None:
    assert CausalModel.of(hugging_face()).eos == (1,)
    assert CausalModel.of(hugging_face(eos_token_id=[1, 4])).eos == (1, 4)
    assert CausalModel.of(make("transformer")).eos == ()


def test_a_face_is_its_own() -> None:
    model = CausalModel.of(make("transformer"))
    assert CausalModel.of(model) is model
    assert model.vocab_size == VOCABULARY


def test_the_transformer_is_causal_and_seeded() -> None:
    model = Transformer(VOCABULARY, hidden=32, seed=4)
    spread(model)
    changed = IDS.clone()
    changed[:, 3:] = 0
    torch.testing.assert_close(model(IDS)[:, :3], model(changed)[:, :3])
    assert torch.equal(model(IDS), spread(Transformer(VOCABULARY, hidden=32, seed=4))(IDS))
    written = model.generate(IDS, 4, generator=torch.Generator().manual_seed(0))
    assert written.shape == (2, 9)
    assert torch.equal(written[:, :5], IDS)


def test_the_transformer_refuses_what_it_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"hidden must be a multiple of 2 \* heads, got 36 and 4"):
        Transformer(8, hidden=36)
    with pytest.raises(ValueError, match="ids must have at most 4 tokens, got 5"):
        Transformer(16, max_positions=4)(IDS)


LLAMAS = ["Llama", "Qwen2", "Qwen3", "Mistral"]


def batch_of(ids: torch.Tensor, lengths: list[int]) -> TokenBatch:
    """The first tokens of sequences, one prompt token each."""
    rows = [row[:length] for row, length in zip(ids, lengths, strict=True)]
    return TokenBatch.of_sequences(rows, torch.ones(len(rows), dtype=torch.int64))


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "is_llama"), [*((kind, True) for kind in LLAMAS), ("GPTNeoX", False)]
)
def test_layers_like_llamas_are_run_without_their_modules(kind: str, is_llama: bool) -> None:
    """With heads that share keys and values, and with the weights as they are now."""
    module = hugging_face(kind, num_key_value_heads=2)
    model: Any = CausalModel.of(module)
    assert model.packs == is_llama
    spread(module, 0.7)
    cache = model.make_cache(2, 8)
    _, prompts = model.prefill(batch_of(IDS, [3, 2]), cache)
    cache.put(prompts, torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([3, 2]))
    found = model.decode(torch.stack([IDS[0, 3], IDS[1, 2]]), cache)
    wanted = module(IDS).logits
    torch.testing.assert_close(found[0], wanted[0, 3], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found[1], wanted[1, 2], atol=1e-4, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("kind", LLAMAS)
@pytest.mark.parametrize("lengths", [[5, 5], [5, 3], [1, 4]])
@pytest.mark.parametrize("forgets", [False, True], ids=["whole", "checkpointed"])
def test_packed_sequences_have_the_outputs_and_gradients_of_padded_ones(
    kind: str, lengths: list[int], forgets: bool
) -> None:
    module = hugging_face(kind, num_key_value_heads=2)
    if forgets:
        module.train()
        module.activation_checkpointing_enable()
    model = CausalModel.of(module)
    batch = batch_of(IDS, lengths)
    assert model.packs
    found = []
    for outputs in (model.outputs, partial(CausalModel.outputs, model)):  # theirs pads
        module.zero_grad()
        rows = outputs(batch)
        (rows * torch.linspace(-1, 1, rows.numel()).view_as(rows)).sum().backward()
        gradients = [
            parameter.grad for parameter in module.parameters() if parameter.grad is not None
        ]
        found.append([rows.detach(), *gradients])
    assert len(found[0]) == len(found[1]) > 10
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["Llama", "Qwen2", "Mistral"])
@pytest.mark.parametrize("forgets", [False, True], ids=["whole", "checkpointed"])
@pytest.mark.parametrize("frozen", [(), ("q_proj", "mlp"), ("norm", "bias")], ids=str)
def test_the_gradient_of_a_layer_by_hand_is_that_of_autograd(
    kind: str, forgets: bool, frozen: tuple[str, ...]
) -> None:
    module = hugging_face(kind, num_key_value_heads=2).double()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in module.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data += 0.1 * noise  # biases and norms have first weights that hide faults
        parameter.requires_grad_(not any(part in name for part in frozen))
    decoder = module.model
    layer = LlamaLayers(decoder)._layers[1]
    lengths = torch.tensor([4, 1, 3])
    attention = SequenceAttention(lengths, 4, 8)
    cos, sin = decoder.rotary_emb(torch.zeros(1, 8, 32).double(), torch.arange(8)[None])
    weights = layer.weights()
    assert weights is not None
    found = []
    runs: list[Any] = [
        lambda x: run_layer(x, cos[0], sin[0], attention, weights, layer.shape, forgets=forgets),
        lambda x: layer.composed(x, cos[0], sin[0], attention),
    ]
    for run in runs:
        module.zero_grad()
        x = torch.linspace(-1, 2, 8 * 32).double().view(8, 32).sin().requires_grad_()
        y = run(x)
        (y * torch.linspace(-1, 1, y.numel()).double().view_as(y).cos()).sum().backward()
        found.append([y.detach(), x.grad, *(p.grad for p in decoder.layers[1].parameters())])
    for ours, theirs in zip(*found, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


@pytest.mark.long
@OLD_NAMES
def test_adapters_are_part_of_layers_without_modules() -> None:
    peft = pytest.importorskip("peft")
    base = hugging_face()
    before = base(IDS).logits.detach()
    config = peft.LoraConfig(r=2, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    model = CausalModel.of(peft.get_peft_model(base, config).eval())
    batch = batch_of(IDS, [5, 3])
    assert model.packs
    found = model.outputs(batch)
    torch.testing.assert_close(found, CausalModel.outputs(model, batch), atol=1e-5, rtol=1e-5)
    found.sum().backward()
    gradients = [x.grad for name, x in model.module.named_parameters() if "lora_A" in name]
    assert all(gradient is not None and gradient.any() for gradient in gradients)
    reference = model.reference()
    assert reference.packs
    weight = model.head_weight
    assert weight is not None
    rows = torch.nn.functional.linear(reference.outputs(batch), weight)
    torch.testing.assert_close(rows[:4], before[0, :4], atol=1e-4, rtol=1e-4)
    assert (rows[:4] - torch.nn.functional.linear(found, weight)[:4]).abs().max() > 1e-3


def by_a_hook(module: Any) -> None:
    module.model.layers[0].mlp.register_forward_hook(lambda _, __, out: 2 * out)


def by_another_forward(module: Any) -> None:
    layer = module.model.layers[0].mlp
    plain = layer.forward
    layer.forward = lambda x: 2 * plain(x)


def by_another_module(module: Any) -> None:
    old = module.model.layers[0].mlp.down_proj
    module.model.layers[0].mlp.down_proj = torch.nn.Sequential(old, old.__class__(32, 32))


@pytest.mark.long
@pytest.mark.parametrize("change", [by_a_hook, by_another_forward, by_another_module])
@pytest.mark.parametrize("when", ["before", "after"])
def test_layers_that_do_something_else_do_it(change: Any, when: str) -> None:
    """A model that only looks like Llama is found out, whenever it was changed."""
    module = hugging_face()
    if when == "before":
        change(module)
    model: Any = CausalModel.of(module)
    if when == "after":
        change(module)
    assert model._has_slots
    batch = batch_of(IDS, [5, 3])
    expected = CausalModel.outputs(model, batch)
    torch.testing.assert_close(model.outputs(batch), expected, atol=1e-5, rtol=1e-5)
    logits, _ = model.prefill(batch, model.make_cache(2, 8))
    wanted = module(IDS).logits
    torch.testing.assert_close(logits[0], wanted[0, 4], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits[1], wanted[1, 2], atol=1e-4, rtol=1e-4)
