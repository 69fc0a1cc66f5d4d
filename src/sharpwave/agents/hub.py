"""Trained agents on the Hugging Face Hub.

The base class of agents takes `push_to_hub` as its own method.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import yaml

from sharpwave.config.off_policy import MEMORY
from sharpwave.core.optional import require
from sharpwave.storage.checkpoints import (
    read_checkpoint,
    read_header,
    remove_checkpoint,
    write_checkpoint,
)
from sharpwave.storage.files import write_json

__all__ = ["fetched", "push_to_hub"]

CHECKPOINT = "agent.safetensors"
CONFIG = "config.json"
FORMAT = "sharpwave agent"
"""The "format" in `config.json` by which a repository is recognized."""

BUFFERS = (None, MEMORY, "device")
"""Storages of replay that every machine has."""
ELSEWHERE = ("folder", "run", "shards", "foreign")
"""Kinds of replay whose steps are not in the checkpoint."""

CARD = """\
# {title}

An agent of sharpwave: {algorithm} on {subject}, {steps} {unit}.
{result}
```python
import sharpwave as sw

agent = sw.{cls}.from_hub("{repo_id}")
{use}
```

`{checkpoint}` is a checkpoint: training goes on from it with `agent.train(...)`.
Reading it runs no code.

## Options

```yaml
{options}```
"""


def push_to_hub(  # noqa: D417 - a method
    self: Any,
    repo_id: str,
    *,
    evaluation: Any = None,
    private: bool | None = None,
    token: str | None = None,
    revision: str | None = None,
    commit_message: str | None = None,
) -> str:
    """Publish the agent on the Hugging Face Hub: a checkpoint, its options and a model card.

    Others see all options, with the id and the arguments of the environment. What is of this
    machine alone is left out: addresses, files of certificates, folders of replay and of datasets.

    Args:
        repo_id: `USER/NAME` of the repository, which is made if there is none.
        evaluation: An `EvaluationResult`, such as `agent.evaluate()`, for the card; None for a
            card without results.
        private: True if others are not to see a repository that is made here.
        token: Access token; the one that `hf auth login` saved when None.
        revision: Branch to write to; the main one when None.
        commit_message: Message of the commit.

    Returns:
        URL of the commit.

    Raises:
        ImportError: huggingface_hub is not installed.
    """
    hub = require("huggingface_hub", extra="hub")
    api = hub.HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        header = _saved(self, Path(folder, CHECKPOINT))
        facts = {"format": FORMAT, "algorithm": self.name, "config": header["config"]}
        write_json(Path(folder, CONFIG), facts)
        # The repository comes last of what can fail here, so that none is left empty.
        card = _card(self, repo_id, header["config"], evaluation)
        Path(folder, "README.md").write_text(card, encoding="utf-8")
        api.create_repo(repo_id, private=private, exist_ok=True)
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            revision=revision,
            commit_message=commit_message or f"{self.name} of {self.timesteps} {self.loop.unit}",
            delete_patterns="*.safetensors",  # parts of what was there before
        )
    return str(commit.commit_url)


def _saved(agent: Any, path: Path) -> dict[str, Any]:
    """Write a checkpoint for others, and return its header."""
    agent.save(path)
    header = read_header(path)
    published = _published(header, type(agent).Config().to_dict())
    if published != header or getattr(agent.loop, "store", None) is not None:
        _, state = read_checkpoint(path)
        stored = state["learner"].get("buffer")
        if stored is not None and stored["kind"] in ELSEWHERE:
            state["learner"]["buffer"] = None
        remove_checkpoint(path)
        write_checkpoint(path, published, state)
    return published


def _published(header: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The header of a checkpoint without what is of this machine alone."""
    # These need gymnasium, which agents of one's own may do without.
    from sharpwave.learners.actor import OF_THIS_MACHINE
    from sharpwave.loops.offline_data import MINARI

    config = dict(header["config"])
    local = {name for name in OF_THIS_MACHINE if name in config}
    if config.get("buffer") not in BUFFERS:
        local.add("buffer")
    config |= {name: defaults[name] for name in local}
    published = {**header, "config": config}
    if not str(header.get("dataset") or MINARI).startswith(MINARI):
        published["dataset"] = None
    model = header.get("model")
    if model and Path(str(model.get("config", {}).get("_name_or_path", ""))).is_absolute():
        published["model"] = {**model, "config": {**model["config"], "_name_or_path": ""}}
    return published


def fetched(repo_id: str, revision: str | None, token: str | None) -> Path:
    """The checkpoint of a repository that `push_to_hub` wrote, on this machine."""
    hub = require("huggingface_hub", extra="hub")
    folder = hub.snapshot_download(
        repo_id, revision=revision, token=token, allow_patterns=["*.safetensors", CONFIG]
    )
    checkpoint = Path(folder, CHECKPOINT)
    if not checkpoint.is_file():
        raise ValueError(f"repo_id must name an agent of sharpwave, got {repo_id!r}")
    return checkpoint


def _card(agent: Any, repo_id: str, config: dict[str, Any], evaluation: Any) -> str:
    """The model card: metadata that the Hub searches, and how to use the agent."""
    subject = str(agent.facts().get("env_id") or agent.loop.subject)
    tags = ["reinforcement-learning", "deep-reinforcement-learning", "sharpwave", agent.name]
    metadata: dict[str, Any] = {"library_name": "sharpwave", "tags": [*tags, subject]}
    result = ""
    if evaluation is not None and evaluation.returns:
        score = f"{evaluation.mean:.2f} ± {evaluation.std:.2f}"
        result = f"Mean return of {len(evaluation.returns)} {evaluation.each}s: {score}.\n"
        metadata["model-index"] = [{"name": agent.name, "results": [_result(subject, score)]}]
    plays = hasattr(agent, "evaluate")
    text = CARD.format(
        title=f"{type(agent).__name__} on {subject}",
        subject=subject,
        algorithm=type(agent).__name__,
        steps=f"{agent.timesteps:,}",
        unit=agent.loop.unit,
        result=result,
        cls=type(agent).__name__,
        repo_id=repo_id,
        use="print(agent.evaluate())" if plays else "agent.train(...)",
        checkpoint=CHECKPOINT,
        options=yaml.safe_dump(config, sort_keys=False),
    )
    return f"---\n{yaml.safe_dump(metadata, sort_keys=False)}---\n\n{text}"


def _result(subject: str, score: str) -> dict[str, Any]:
    """A result in the form of the Hub's index of models."""
    return {
        "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
        "dataset": {"name": subject, "type": subject},
        "metrics": [{"type": "mean_reward", "value": score, "name": "mean_reward"}],
    }
