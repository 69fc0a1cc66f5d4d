"""Agents that are language models."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from sharpwave.agents.agent import Agent
from sharpwave.agents.saved_model import check_same, header_of, rebuilt
from sharpwave.config.options import RunConfig, resolve_config
from sharpwave.core.lazy import llm
from sharpwave.core.ranks import Ranks
from sharpwave.loops.prompts import PromptLoop
from sharpwave.runs.callbacks import Callback
from sharpwave.runs.evaluation import EvaluationResult
from sharpwave.runs.interval import positive
from sharpwave.runs.loggers import LoggerCallback

if TYPE_CHECKING:
    from typing_extensions import Self

    from sharpwave.llm import CausalModel, Completions, Prompts, Sampler, TokenBatch

__all__ = ["LanguageAgent", "OnlineLanguageAgent"]


class LanguageAgent(Agent):
    """A language model that learns; a subclass says from what.

    Args:
        model: A module with `forward(ids) -> logits`, or a causal model of Hugging Face; it learns
            in place.
        ref_model: Reference model of the KL penalty; the model as it is now when not given.
        callbacks: Called during every `train`.
        logger: A logger of the metrics, or several.
        tokenizer: Turns text into tokens and back.
        learner: A class derived from the algorithm's learner, in place of it.
        config: All options at once; single options given by name win over it.
        given: Fields of `Config` that the constructor names; those that are None were not given.
        **overrides: Any field of `Config`.
    """

    backend_reason = "language models are torch's"

    def __init__(
        self,
        model: Any,
        ref_model: Any,
        callbacks: Callback | Iterable[Callback] | None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None,
        *,
        tokenizer: Any,
        learner: Any,
        config: RunConfig | dict[str, Any] | None,
        given: dict[str, Any],
        **overrides: Any,
    ) -> None:
        overrides |= {name: value for name, value in given.items() if value is not None}
        if overrides.get("seed", 0) is None:
            del overrides["seed"]
        super().__init__(resolve_config(self.Config, config, overrides), callbacks, logger)
        # Processes that learn together draw from one seed.
        seed = Ranks.join(self.config.sharding).first(self.seed)
        self.config = self.config.replace(seed=seed)
        self.model = self._face(model, tokenizer)
        self.tokenizer = tokenizer
        self._reference = None if ref_model is None else self._face(ref_model, tokenizer)
        self._given_learner = learner

    def _face(self, model: Any, tokenizer: Any) -> CausalModel:
        """The face of a model that was given, where the configuration wants it."""
        module = getattr(model, "module", model)
        if self.config.device is not None and hasattr(module, "to"):
            from sharpwave.learners.devices import find_device  # without it, none of Gymnasium

            module.to(find_device(self.config.device))
        return llm.CausalModel.of(model, tokenizer)

    def facts(self) -> dict[str, Any]:
        """The model, in words."""
        parameters = list(self.learner.model.module.parameters())
        total = sum(one.numel() for one in parameters)
        learn = sum(one.numel() for one in parameters if one.requires_grad)
        some = f", {learn:,} of which learn" if learn < total else ""
        name = self._told["model"].get("architecture", llm.class_name(self.model.module))
        return {"model": f"{name}, {total:,} parameters{some}"}

    def make_learner(self) -> Any:
        """The learner: that of the algorithm, or a user's own."""
        if "learner" in vars(self):
            self.learner.gather()  # what made one learner makes the next
        kind: Any = self._given_learner or self.Learner
        made = kind(self.config, self.model, self._reference)
        if not made.ranks.is_alone:
            made.ranks.helpers["save"] = super().save
        return made

    def _arguments(self) -> dict[str, Any]:
        arguments = {"model": self.model.module, "tokenizer": self.tokenizer}
        if self._reference is not None:
            arguments["ref_model"] = self._reference.module
        return {**arguments, "learner": self._given_learner}

    # Checkpoints and files

    @classmethod
    def from_checkpoint(cls, path: str | os.PathLike[str], **options: Any) -> Self:
        """The agent that `save` wrote, ready to predict or to go on with `train()`.

        Args:
            path: The file.
            **options: Arguments of the constructor. `model`, `ref_model` and `tokenizer` are made
                of what the file says where they are not given: `nn.Transformer`, causal models of
                transformers and adapters of PEFT, and the tokenizers of transformers can be. What
                is learned from, and reward functions, are always given.

        Raises:
            SharpwaveIOError: There is no checkpoint of a known version.
            TypeError: `model` or `tokenizer` is one of your own, and is not given.
            ValueError: It belongs to another algorithm, model or tokenizer, and how is said.
        """
        return cls._restore(path, options)

    @classmethod
    def _from_header(
        cls,
        path: str | os.PathLike[str],
        header: dict[str, Any],
        config: Any,
        arguments: dict[str, Any],
    ) -> Self:
        made = rebuilt(path, header, arguments, config.device)
        agent = super()._from_header(path, header, config, made)
        agent._check_same(header)
        return agent

    def _check_same(self, header: dict[str, Any]) -> None:
        check_same(self._told, header)

    @cached_property
    def _told(self) -> dict[str, Any]:
        return header_of(self.model, self._reference, self.tokenizer)

    @cached_property
    def _tokenizer_files(self) -> dict[str, Any]:
        files: dict[str, Any] = llm.tokenizer_files(self.tokenizer)
        return files

    def _header(self) -> dict[str, Any]:
        return {**super()._header(), **self._told}

    def _state(self) -> dict[str, Any]:
        return {**super()._state(), "tokenizer": self._tokenizer_files}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a checkpoint: everything that continuing needs; see `Agent.save`.

        Of several processes each writes its shards, into files beside `path`.
        """
        self.learner.ranks.ask("save", os.fspath(path))
        super().save(path)

    def save_pretrained(self, folder: str | os.PathLike[str], *, merge: bool = True) -> None:
        """Write the model as `AutoModelForCausalLM.from_pretrained` opens it, with its tokenizer.

        Args:
            folder: The folder to write to.
            merge: Write one model with its adapter in it; False writes the adapter alone.

        Raises:
            TypeError: The model is not one of Hugging Face.
            ValueError: The adapter is to be alone, and its model was not loaded from anywhere.
        """
        with self.learner.whole():
            if self.learner.ranks.leads:
                llm.save_pretrained(self.model, folder, merge=merge)

    # Writing

    def prompts_of(self, source: Any) -> Prompts:
        """Prompts, out of whatever holds them, cut where the options say so."""
        found: Prompts = llm.Prompts.of(source, self.tokenizer)
        room = self.model.max_positions
        if room is None or self.config.truncate_prompt == "no":
            return found
        return found.shortened(room - self.config.max_new_tokens)

    def predict(self, prompts: Any, n: int = 1, *, greedy: bool = True) -> Any:
        """Completions of prompts: texts where there is a tokenizer, tokens otherwise."""
        found = self.prompts_of([prompts] if isinstance(prompts, str) else prompts)
        written = self._write(found, n, greedy=greedy)
        if self.tokenizer is None:
            return list(written)
        return [self.tokenizer.decode(one.tolist(), skip_special_tokens=True) for one in written]

    def _write(
        self, prompts: Prompts, n: int, *, greedy: bool, model: CausalModel | None = None
    ) -> Completions:
        """Completions by a sampler of its own, so that looking at a run does not change it."""
        temperature = 0.0 if greedy else self.config.temperature
        with self.learner.whole(model) as found:
            sampler = llm.Sampler(found, seed=self.seed ^ 1, temperature=temperature)
            return self._complete(prompts, sampler, n)

    def _complete(self, prompts: Prompts, sampler: Sampler, n: int) -> Completions:
        return sampler.generate(prompts.tokens, n, self.config.max_new_tokens)


def updates_of(n_epochs: int, n_rows: int, per_update: int) -> int:
    """Updates in which every row comes up so often."""
    return -(-positive(n_epochs, name="n_epochs") * n_rows // per_update)


class OnlineLanguageAgent(LanguageAgent):
    """A language model that learns from what it writes.

    Args:
        model: A module with `forward(ids) -> logits`, or a causal model of Hugging Face; it learns
            in place.
        ref_model: Reference model of the KL penalty; the model as it is now when not given.
        reward_fn: Reward function of completions, or several; see `llm.Rewards`.
        group_size: Completions of each prompt.
        learning_rate: Step size of AdamW.
        kl_coef: Weight of the divergence from the reference.
        max_new_tokens: Tokens of a completion at most.
        callbacks: Called during every `train`.
        logger: A logger of the metrics, or several.
        tokenizer: Turns text into tokens and back.
        prompts: Prompts to complete; see `llm.Prompts`.
        eval_prompts: Prompts of `evaluate`; `prompts` when not given.
        sampler: Sampler of completions, in place of one made from the options.
        rollout_fn: Completes in place of the sampler alone, as several turns with a tool do:
            `f(prompts, sampler, n)` gives a `llm.TokenBatch` of n completions of each prompt, with
            a `loss_mask` that leaves out the tokens that the model did not write.
        store: Keeps all completions with their rewards: a `llm.CompletionStore`, or its folder.
            A copy of the agent has none.
        learner: A class derived from the algorithm's learner, in place of it.
        config: All options at once; single options given by name win over it.
        **overrides: Any field of `Config`.

    Raises:
        TypeError: An option does not exist, `model` is no language model, there is no `reward_fn`,
            or text comes without a tokenizer.
        ValueError: An option has an impossible value.
    """

    leading_arguments: ClassVar[dict[str, Any]] = {
        "model": inspect.Parameter.empty,
        "ref_model": None,
        "reward_fn": None,
        "group_size": None,
        "learning_rate": None,
        "kl_coef": None,
        "max_new_tokens": None,
        "callbacks": None,
        "logger": None,
    }
    named_arguments: ClassVar[dict[str, Any]] = {
        "tokenizer": None,
        "prompts": None,
        "eval_prompts": None,
        "sampler": None,
        "rollout_fn": None,
        "store": None,
        "learner": None,
    }
    loop: PromptLoop

    def __init__(
        self,
        model: Any,
        ref_model: Any = None,
        reward_fn: Any = None,
        group_size: int | None = None,
        learning_rate: Any = None,
        kl_coef: float | None = None,
        max_new_tokens: int | None = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        logger: LoggerCallback | Iterable[LoggerCallback] | None = None,
        *,
        tokenizer: Any = None,
        prompts: Any = None,
        eval_prompts: Any = None,
        sampler: Sampler | None = None,
        rollout_fn: Any = None,
        store: Any = None,
        learner: Any = None,
        config: RunConfig | dict[str, Any] | None = None,
        **overrides: Any,
    ) -> None:
        given = {
            "group_size": group_size,
            "learning_rate": learning_rate,
            "kl_coef": kl_coef,
            "max_new_tokens": max_new_tokens,
        }
        super().__init__(
            model,
            ref_model,
            callbacks,
            logger,
            tokenizer=tokenizer,
            learner=learner,
            config=config,
            given=given,
            **overrides,
        )
        if reward_fn is None:
            raise TypeError("reward_fn must be given: a function that scores completions")
        self.eval_prompts = None if eval_prompts is None else self.prompts_of(eval_prompts)
        self._prompts = None if prompts is None else self.prompts_of(prompts)
        self._rewards = (
            reward_fn
            if isinstance(reward_fn, llm.Rewards | llm.Preferences)
            else llm.Rewards(reward_fn, tokenizer=tokenizer)
        )
        self._sampler = sampler
        self._rollout_fn = rollout_fn
        self._store = llm.CompletionStore(store) if isinstance(store, str | os.PathLike) else store
        self.build()

    def build(self) -> None:
        """Make the learner, and the loop that feeds it."""
        config = self.config
        self.learner = self.make_learner()
        sampler = self._sampler or llm.Sampler(
            self.model,
            seed=self.seed,
            temperature=config.temperature,
            top_p=config.top_p,
            top_k=config.top_k,
        )
        self.loop = self.loop_kind()(
            self.learner,
            config,
            prompts=self._prompts,
            sampler=sampler,
            rewards=self._rewards,
            seed=self.seed,
            store=self._store,
            rollout_fn=self._rollout_fn,
        )

    def loop_kind(self) -> type[PromptLoop]:
        """The class of the loop that feeds the learner."""
        return PromptLoop

    def train(
        self,
        prompts: Any = None,
        n_epochs: int | None = None,
        *,
        n_updates: int | None = None,
        callbacks: Callback | Iterable[Callback] | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        resume: bool = False,
    ) -> dict[str, float]:
        """Learn for a number of updates.

        Args:
            prompts: Prompts to complete, in place of the constructor's.
            n_epochs: Number of passes over the prompts; 1 when `prompts` alone is given.
            n_updates: Updates to add, in place of epochs; `config.total_timesteps` when neither is
                given.
            callbacks: Called during this run, after the agent's own.
            run_dir: Folder that receives config, metrics, checkpoints and a report.
            resume: Go on with the run that `run_dir` holds, if it holds one.

        Returns:
            Metrics of the last update.

        Raises:
            RewardFailed: A reward function raised, or gave what is no reward.
            ValueError: There are no prompts, or a number is not a positive integer.
        """
        if prompts is not None:
            self._prompts = self.loop.prompts = self.prompts_of(prompts)
            n_epochs = 1 if n_epochs is None and n_updates is None else n_epochs
        self.loop.check()
        if n_epochs is not None and n_updates is None:
            assert self.loop.prompts is not None
            n_updates = updates_of(n_epochs, len(self.loop.prompts), self.config.n_prompts)
        return self.run.train(n_updates, callbacks, run_dir, resume)

    def train_step(self, prompts: Any) -> dict[str, float]:
        """One update on a batch of prompts, outside of a run."""
        from sharpwave.runs.recorded import fetched

        batch, measured = self.loop.rollout(self.prompts_of(prompts))
        metrics = self.learner.update(batch)
        self.loop.sampler.version = self.learner.updates
        self.loop.timesteps += 1
        metrics = {**metrics, **measured}
        name = self.loop.measure
        return fetched({**metrics, **({f"mean_{name}": metrics[name]} if name in metrics else {})})

    def rollout(self, prompts: Any) -> TokenBatch:
        """Completions of prompts, scored, as `update` takes them."""
        return self.loop.rollout(self.prompts_of(prompts))[0]

    def evaluate(
        self, prompts: Any = None, n: int = 1, *, greedy: bool = False
    ) -> EvaluationResult:
        """Complete prompts and score that.

        Args:
            prompts: Prompts to complete; `eval_prompts`, or those of training, when not given.
            n: Completions of each.
            greedy: Take the most likely tokens.

        Returns:
            Rewards (`returns`) and numbers of tokens (`lengths`) of the completions that were
            scored, and what was written (`samples`).
        """
        found = self._prompts_or_own(prompts)
        completions = self._write(found, n, greedy=greedy)
        scored = self._rewards(found, completions)
        is_scored = ~scored.rewards.isnan()
        return EvaluationResult(
            tuple(scored.rewards[is_scored].tolist()),
            tuple(completions.lengths.cpu()[is_scored].tolist()),
            samples=tuple(llm.Samples(found, completions, scored, tokenizer=self.tokenizer)),
            each=self.loop.headline.each,
        )

    def evaluate_in_run(
        self, n_episodes: int, *, env: Any = None, deterministic: bool = True
    ) -> EvaluationResult:
        """The evaluation of `EvalCallback`: the first prompts take the place of episodes."""
        found = self._prompts_or_own(env)
        return self.evaluate(found.select(range(min(n_episodes, len(found)))), greedy=deterministic)

    def _arguments(self) -> dict[str, Any]:
        return {
            **super()._arguments(),
            "reward_fn": self._rewards,
            "prompts": self._prompts,
            "eval_prompts": self.eval_prompts,
            "sampler": self._sampler,
            "rollout_fn": self._rollout_fn,
        }

    def _complete(self, prompts: Prompts, sampler: Sampler, n: int) -> Completions:
        return self.loop.complete(prompts, sampler, n)

    def _prompts_or_own(self, prompts: Any) -> Prompts:
        given = self.eval_prompts or self._prompts if prompts is None else prompts
        if given is None:
            raise ValueError("prompts must be given: the agent has none of its own")
        return self.prompts_of(given)
