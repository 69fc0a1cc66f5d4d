"""One face for language models: plain modules, `nn.Transformer`, causal models of Hugging Face."""

from __future__ import annotations

import contextlib
import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from sharpwave.core.notice import notice
from sharpwave.llm.attention import SequenceAttention
from sharpwave.llm.batch import TokenBatch
from sharpwave.llm.cache import PromptCache, SlotCache, TokenCache
from sharpwave.llm.llama import LlamaLayers
from sharpwave.nn.transformer import Transformer

__all__ = ["CausalModel", "HuggingFaceModel", "PlainModel", "TransformerModel"]


class CausalModel(ABC):
    """A language model as sampling and scoring see it.

    Args:
        module: The model.
        tokenizer: Turns text into tokens and back; None where prompts are tokens.

    Attributes:
        module: The model.
        tokenizer: Turns text into tokens and back, or None.
        vocab_size: Number of tokens.
        max_positions: Maximum length of a sequence; None where the model does not say.
        eos: Tokens that end a sequence.
    """

    module: nn.Module
    vocab_size: int
    max_positions: int | None = None
    eos: tuple[int, ...] = ()

    def __init__(self, module: nn.Module, tokenizer: Any = None) -> None:
        self.module = module
        self.tokenizer = tokenizer
        found = getattr(tokenizer, "eos_token_id", None)
        self.eos = () if found is None else (int(found),)

    @staticmethod
    def of(model: Any, tokenizer: Any = None) -> CausalModel:
        """The face of a model.

        Args:
            model: A module with `forward(ids [B, L]) -> logits [B, L, V]`, a causal model of
                Hugging Face, with an adapter of PEFT or without, or a face already.
            tokenizer: Turns text into tokens and back.

        Raises:
            TypeError: It is none of these.
        """
        if isinstance(model, CausalModel):
            return model
        if not isinstance(model, nn.Module):
            raise TypeError(f"model must be a torch module, got {type(model).__name__}")
        _widen_if_needed(model)
        if isinstance(model, Transformer):
            return TransformerModel(model, tokenizer)
        if _is_hugging_face(model):
            return HuggingFaceModel(model, tokenizer)
        return PlainModel(model, tokenizer)

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(iter(self.module.parameters())).device

    @property
    def head_weight(self) -> Tensor | None:
        """[V, H] by which hidden states become logits; None where only the model knows how."""
        return None

    @abstractmethod
    def logits(self, ids: Tensor) -> Tensor:
        """Logits [B, L, V] of the token after each of `ids` [B, L]."""

    def hidden(self, ids: Tensor) -> Tensor:
        """Hidden states [B, L, H] of `ids`, where `head_weight` is there."""
        raise TypeError(f"{type(self.module).__name__} does not give hidden states: {ids.shape}")

    @property
    def packs(self) -> bool:
        """True if sequences of different lengths are computed without padding (packed)."""
        return False

    def outputs(self, batch: TokenBatch) -> Tensor:
        """Hidden states [T, H] or logits [T, V] that completion tokens were sampled from.

        Logits are where there is no `head_weight`. Sequences are padded on the right, which no
        token before it attends to.
        """
        ids = batch.padded()
        found = self.logits(ids) if self.head_weight is None else self.hidden(ids)
        return found[batch.sequence, batch.position - 1]

    # Sampling

    def make_cache(self, n_slots: int, capacity: int) -> Any:
        """Key-value cache for `n_slots` sequences of up to `capacity` tokens."""
        return TokenCache(n_slots, capacity, self.device)

    def prefill(self, prompts: TokenBatch, cache: Any) -> tuple[Tensor, Any]:  # noqa: ARG002
        """Logits [B, V] after prompts, and what `cache.put` takes of them.

        Shorter prompts are padded on the right, which tokens before it do not attend to.
        """
        ids = prompts.padded()
        return _at_ends(self.logits(ids), prompts.lengths), ids

    def decode(self, ids: Tensor, cache: Any) -> Tensor:
        """Logits [S, V] after one more token [S] in each slot."""
        tokens = cache.append(ids)
        return _at_ends(self.logits(tokens), cache.lengths)

    # Others

    def reference(self) -> CausalModel:
        """The model as it is now: a frozen copy, which does not follow what is learned."""
        module = copy.deepcopy(self.module).eval().requires_grad_(False)
        return type(self)(module, self.tokenizer)

    @contextlib.contextmanager
    def evaluating(self) -> Iterator[None]:
        """Context in which the model is in evaluation mode, without dropout."""
        was_training = self.module.training
        self.module.eval()
        try:
            yield
        finally:
            self.module.train(was_training)


class PlainModel(CausalModel):
    """A module with `forward(ids) -> logits`."""

    def __init__(self, module: nn.Module, tokenizer: Any = None) -> None:
        super().__init__(module, tokenizer)
        with torch.no_grad(), self.evaluating():
            self.vocab_size = self.logits(torch.zeros((1, 1), dtype=torch.int64)).shape[-1]

    @property
    def device(self) -> torch.device:
        """Device of the model; the CPU for one without parameters."""
        parameter = next(iter(self.module.parameters()), None)
        return torch.device("cpu") if parameter is None else parameter.device

    def logits(self, ids: Tensor) -> Tensor:
        """Logits [B, L, V] of the token after each of `ids` [B, L].

        Raises:
            TypeError: The module gives something else.
        """
        found = self.module(ids.to(self.device))
        found = getattr(found, "logits", found)
        if not isinstance(found, Tensor) or found.shape[:-1] != ids.shape:
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise TypeError(
                f"model must give logits [B, L, V] for tokens [B, L], got {got} for "
                f"{tuple(ids.shape)} from {type(self.module).__name__}"
            )
        return found


class TransformerModel(CausalModel):
    """`nn.Transformer`."""

    module: Transformer

    def __init__(self, module: Transformer, tokenizer: Any = None) -> None:
        super().__init__(module, tokenizer)
        self.vocab_size = module.vocab_size
        self.max_positions = module.max_positions

    @property
    def head_weight(self) -> Tensor:
        """[V, H] by which hidden states become logits."""
        return self.module.embedding

    def logits(self, ids: Tensor) -> Tensor:
        """Logits [B, L, V] of the token after each of `ids` [B, L]."""
        return self.module(ids)  # type: ignore[no-any-return]

    def hidden(self, ids: Tensor) -> Tensor:
        """Hidden states [B, L, H] of `ids`."""
        return self.module.hidden(ids)

    def make_cache(self, n_slots: int, capacity: int) -> SlotCache:
        """Key-value cache for `n_slots` sequences of up to `capacity` tokens."""
        return SlotCache(n_slots, capacity, self.device)

    def prefill(self, prompts: TokenBatch, cache: Any) -> tuple[Tensor, Any]:  # noqa: ARG002
        """Logits [B, V] after prompts, and their keys and values."""
        read = PromptCache()
        last = _at_ends(self.module.hidden(prompts.padded(), cache=read), prompts.lengths)
        return linear(last, self.head_weight), read

    def decode(self, ids: Tensor, cache: SlotCache) -> Tensor:
        """Logits [S, V] after one more token [S] in each slot."""
        positions = cache.begin()[:, None]
        hidden = self.module.hidden(ids[:, None], positions, cache, cache.mask)
        return linear(hidden[:, 0], self.head_weight)


class HuggingFaceModel(CausalModel):
    """A causal model of Hugging Face, with an adapter of PEFT or without.

    What it lets us do is tried once on a few tokens: whether hidden states times the head are its
    logits, whether it attends to keys and values in slots, and whether its layers are those of
    Llama, which are then run without the modules around them and without padding. Where it has no
    slots, all tokens are computed anew at every step, which is said.
    """

    module: Any

    def __init__(self, module: nn.Module, tokenizer: Any = None) -> None:
        super().__init__(module, tokenizer)
        config = self._inner.config
        text = config.get_text_config() if hasattr(config, "get_text_config") else config
        self.vocab_size = int(text.vocab_size)
        self.max_positions = getattr(text, "max_position_embeddings", None)
        self.eos = self.eos or _ends(self._inner)
        self._window = getattr(text, "sliding_window", None) or math.inf
        self._has_head: bool = False
        self._has_slots: bool = False
        self._layers: LlamaLayers | None = None
        self._is_packed = False
        with torch.no_grad(), self.evaluating():
            self._try()
        if not self._has_slots:
            notice(
                f"{type(self._inner).__name__} does not attend to keys and values in slots: "
                "samples are drawn without a cache"
            )

    @property
    def _inner(self) -> Any:
        """The model itself, whose layers hold the adapter where there is one."""
        get = getattr(self.module, "get_base_model", None)
        return self.module if get is None else get()

    def _try(self) -> None:
        ids = torch.arange(3, device=self.device)[None] % self.vocab_size
        logits = self.logits(ids)
        head = self._inner.get_output_embeddings()
        is_plain = isinstance(head, nn.Linear) and type(head).__name__ == "Linear"
        if is_plain and head.bias is None:
            self._has_head = _is_close(linear(self._decoder(ids), head.weight), logits)
        with contextlib.suppress(Exception):  # it may not know such a cache at all
            self._has_slots = self._decodes(ids, logits)
        if self._has_slots and self._has_head:
            with contextlib.suppress(Exception):  # it may be made otherwise
                self._layers = LlamaLayers(self._inner.get_decoder())
                is_same = _is_close(self._head(self._packed(_batch(ids))), logits[0])
                self._layers = self._layers if is_same and self._decodes(ids, logits) else None

    def _decodes(self, ids: Tensor, logits: Tensor) -> bool:
        """Return whether decoding in slots gives the logits [1, 3, V] of three tokens."""
        cache, both = SlotCache(2, 4, self.device), torch.arange(2, device=self.device)
        _, prompts = self._prefill(_batch(ids[:, :2]))
        cache.put(prompts, torch.zeros_like(both), both, torch.full_like(both[:1], 2))
        cache.lengths[1] = 1  # a slot of another length, which gets its second token again
        found = self._decode(torch.stack([ids[0, 2], ids[0, 1]]), cache)
        return _is_close(found, logits[0, [2, 1]])

    @property
    def packs(self) -> bool:
        """True if sequences of different lengths are computed without padding (packed)."""
        return self._layers is not None and self._layers.is_whole

    def outputs(self, batch: TokenBatch) -> Tensor:
        """Hidden states [T, H] or logits [T, V] that completion tokens were sampled from."""
        longest = int(batch.lengths.max())
        if not self.packs or longest > self._window:
            return super().outputs(batch)
        return self._packed(batch)[batch.offsets[:-1][batch.sequence] + batch.position - 1]

    def _packed(self, batch: TokenBatch, cache: Any = None) -> Tensor:
        """Hidden states [S, H] of all tokens."""
        assert self._layers is not None
        longest, n_tokens = int(batch.lengths.max()), len(batch.tokens)
        attention = SequenceAttention(batch.lengths, longest, n_tokens, cache)
        return self._layers(batch.tokens, batch.positions, attention)

    @property
    def head_weight(self) -> Tensor | None:
        """[V, H] by which hidden states become logits; None where the model does more to them."""
        if not self._has_head:
            return None
        weight: Tensor = self._inner.get_output_embeddings().weight
        return weight

    def logits(self, ids: Tensor) -> Tensor:
        """Logits [B, L, V] of the token after each of `ids` [B, L]."""
        logits: Tensor = self._inner(input_ids=ids, use_cache=False).logits
        return logits

    def hidden(self, ids: Tensor) -> Tensor:
        """Hidden states [B, L, H] of `ids`."""
        return self._decoder(ids, use_cache=False)

    def make_cache(self, n_slots: int, capacity: int) -> Any:
        """Key-value cache for `n_slots` sequences of up to `capacity` tokens."""
        # Slots attend to all that came before, so nothing may fall out of a window of attention.
        if self._has_slots and capacity <= self._window:
            return SlotCache(n_slots, capacity, self.device)
        return super().make_cache(n_slots, capacity)

    def prefill(self, prompts: TokenBatch, cache: Any) -> tuple[Tensor, Any]:
        """Logits [B, V] after prompts, and their keys and values."""
        if isinstance(cache, SlotCache):
            return self._prefill(prompts)
        return super().prefill(prompts, cache)

    def decode(self, ids: Tensor, cache: Any) -> Tensor:
        """Logits [S, V] after one more token [S] in each slot."""
        if isinstance(cache, SlotCache):
            return self._decode(ids, cache)
        return super().decode(ids, cache)

    def reference(self) -> CausalModel:
        """The model as it is now; with an adapter, the same model with that switched off."""
        if hasattr(self.module, "disable_adapter"):
            return _WithoutAdapter(self)
        return super().reference()

    def _prefill(self, prompts: TokenBatch) -> tuple[Tensor, PromptCache]:
        cache = PromptCache()
        self._is_packed = self.packs  # and so for the tokens that follow
        if self._is_packed:
            return self._head(self._packed(prompts, cache)[prompts.offsets[1:] - 1]), cache
        ids, lengths = prompts.padded(), prompts.lengths
        if self._has_head:
            hidden = self._decoder(ids, past_key_values=cache, use_cache=True)
            return self._head(_at_ends(hidden, lengths)), cache
        logits = self._inner(input_ids=ids, past_key_values=cache, use_cache=True).logits
        return _at_ends(logits, lengths), cache

    def _decode(self, ids: Tensor, cache: SlotCache) -> Tensor:
        positions = cache.begin()
        if self._is_packed and self._layers is not None:
            return self._head(self._layers(ids, positions, cache.attend))
        positions, mask = positions[:, None], cache.mask
        if self._inner.config._attn_implementation != "sdpa":  # the others add a mask to scores
            mask = torch.zeros_like(mask, dtype=self._inner.dtype).masked_fill(
                ~mask, torch.finfo(self._inner.dtype).min
            )
        given = {"position_ids": positions, "attention_mask": mask, "past_key_values": cache}
        if self._has_head:
            return self._head(self._decoder(ids[:, None], use_cache=True, **given)[:, 0])
        logits: Tensor = self._inner(input_ids=ids[:, None], use_cache=True, **given).logits
        return logits[:, 0]

    def _decoder(self, ids: Tensor, **options: Any) -> Tensor:
        hidden: Tensor = self._inner.get_decoder()(input_ids=ids, **options).last_hidden_state
        return hidden

    def _head(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self._inner.get_output_embeddings()(hidden)
        return logits


class _WithoutAdapter(CausalModel):
    """A model of PEFT with its adapter switched off: a reference without a second model."""

    def __init__(self, model: HuggingFaceModel) -> None:
        super().__init__(model.module, model.tokenizer)
        self._model = model
        self.vocab_size, self.max_positions = model.vocab_size, model.max_positions
        self.eos = model.eos

    @property
    def head_weight(self) -> Tensor | None:
        """That of the model."""
        return self._model.head_weight

    def logits(self, ids: Tensor) -> Tensor:
        """Logits [B, L, V] of the token after each of `ids` [B, L]."""
        with self._model.module.disable_adapter():
            return self._model.logits(ids)

    def hidden(self, ids: Tensor) -> Tensor:
        """Hidden states [B, L, H] of `ids`."""
        with self._model.module.disable_adapter():
            return self._model.hidden(ids)

    @property
    def packs(self) -> bool:
        """That of the model."""
        return self._model.packs

    def outputs(self, batch: TokenBatch) -> Tensor:
        """Hidden states [T, H] or logits [T, V] that completion tokens were sampled from."""
        with self._model.module.disable_adapter():
            return self._model.outputs(batch)

    def reference(self) -> CausalModel:
        """Itself: nothing moves it."""
        return self


def _widen_if_needed(module: nn.Module) -> None:
    """Compute in float32 where the CPU cannot with the numbers of a model, and say so."""
    found = {
        x.dtype for x in module.parameters() if x.is_floating_point() and x.device.type == "cpu"
    }
    for dtype in sorted(found, key=str):
        one = torch.zeros((1, 1), dtype=dtype)
        try:
            one @ one + one
        except (RuntimeError, NotImplementedError):
            notice(f"this CPU does not compute with {dtype}: the model is in float32 from here on")
            module.float()
            return


def _is_hugging_face(module: Any) -> bool:
    get = getattr(module, "get_base_model", None)
    inner = module if get is None else get()
    return hasattr(inner, "config") and hasattr(inner, "get_output_embeddings")


def _ends(module: Any) -> tuple[int, ...]:
    """The tokens that end a sequence, as a model says it."""
    for said in (getattr(module, "generation_config", None), module.config):
        found = getattr(said, "eos_token_id", None)
        if found is not None:
            return tuple(found) if isinstance(found, list | tuple) else (int(found),)
    return ()


def _batch(ids: Tensor) -> TokenBatch:
    """Sequences [B, L] of tokens."""
    return TokenBatch.of_sequences(list(ids), torch.zeros_like(ids[:, 0]))


def _at_ends(x: Tensor, lengths: Tensor) -> Tensor:
    """The last of each sequence: [B, L, ...] to [B, ...]."""
    return x[torch.arange(len(x), device=x.device), lengths - 1]


def _is_close(found: Tensor, wanted: Tensor) -> bool:
    """Return whether two results of the same numbers agree up to rounding of their dtype."""
    scale = wanted.abs().max().float() + 1e-6
    error = (found.float() - wanted.float()).abs().max() / scale
    return bool(error < 32 * torch.finfo(wanted.dtype).eps)
