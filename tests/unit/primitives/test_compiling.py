"""The Triton kernels, compiled for a GPU that is not there, with the arguments they would get."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest
import torch

from sharpwave import primitives
from sharpwave.envs import on_device
from sharpwave.primitives import backend, launching

if not backend.HAS_TRITON or backend.INTERPRETED or torch.cuda.is_available():
    pytest.skip("needs triton, not its interpreter, and no GPU", allow_module_level=True)

from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

from sharpwave.learners.devices import matmul_precision
from sharpwave.primitives.llm import tensors as llm
from sharpwave.primitives.log_probs import tensors as log_probs
from sharpwave.primitives.mlp import tensors as perceptrons
from sharpwave.primitives.mlp import triton as products
from sharpwave.primitives.packing import tensors as packing
from tests.unit.envs.native_runs import IDS
from tests.unit.primitives.calls import NAMES, calls, of_ones


class AbsentDriver:
    """The answers that Triton asks of a device's driver before it compiles."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return device

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that were compiled instead of started."""
    names: list[str] = []

    def launch(
        kernel: Any, grid: tuple[int, ...], where: torch.Tensor, *arguments: Any, **options: Any
    ) -> None:
        assert where.device.type == "cpu"
        machine_code = kernel.warmup(*arguments, grid=grid, **options).asm["cubin"]
        assert machine_code[1:4] == b"ELF"
        names.append(kernel.__name__)

    monkeypatch.setattr(driver, "_active", AbsentDriver())
    replacements = {"launch": launch, "uses_triton": lambda _: True}
    for package in (primitives, on_device):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(found.name)
            if module not in (launching, backend):
                for name in vars(module).keys() & replacements.keys():
                    monkeypatch.setattr(module, name, replacements[name])
    return names


pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")


@pytest.mark.long(only=["gae"])
@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_compiles(name: str, compiled: list[str]) -> None:
    calls("cpu")[name]()
    assert compiled


def test_sizes_of_one_compile(compiled: list[str]) -> None:
    """Triton compiles a 1 into a kernel, where it is no tensor."""
    of_ones("cpu")
    assert len(set(compiled)) > 15


@pytest.mark.long(only=["entropy"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("entropy", [False, True], ids=["alone", "entropy"])
def test_gradients_of_log_probabilities_compile(
    dtype: torch.dtype, in_place: bool, entropy: bool, compiled: list[str]
) -> None:
    logits = torch.randn(3, 5000, dtype=dtype).requires_grad_()
    tokens = torch.tensor([1, 2, 3])
    options: Any = {"entropy": entropy}
    found: Any = log_probs.selected_log_probs(logits, tokens, in_place=in_place, **options)
    sum(found).sum().backward()
    hidden, weight = (torch.randn(n, 16, dtype=dtype).requires_grad_() for n in (3, 700))
    found = log_probs.linear_log_probs(hidden, weight, tokens, slice_size=1, **options)
    sum(found).sum().backward()
    assert len(compiled) > 3


@pytest.mark.parametrize("estimator", llm.ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_every_estimator_compiles(estimator: str, dtype: torch.dtype, compiled: list[str]) -> None:
    p, q = torch.zeros(2, 40, 700, dtype=dtype)
    llm.token_kl(p, q, estimator=estimator)
    assert compiled


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    "options", [{"ddof": 1, "eps": 1e-4}, {"leave_one_out": True}, {"scale": "batch"}], ids=str
)
def test_every_option_of_groups_compiles(
    dtype: torch.dtype, masked: bool, options: Any, compiled: list[str]
) -> None:
    rewards = torch.zeros(40, 8, dtype=dtype)
    llm.group_advantages(rewards, 8, mask=rewards == 0 if masked else None, **options)
    assert compiled


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["elu", "gelu"])
def test_products_with_what_follows_compile(
    name: str, dtype: torch.dtype, compiled: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiles = products.Tiles(128, 128, 32, 8, 3)
    monkeypatch.setattr(products, "TILES", dict.fromkeys(products.TILES, tiles))
    with matmul_precision("tf32"):
        for rows, inputs, outputs in ((1024, 48, 256), (77, 13, 33)):
            x, weight = (torch.zeros(n, inputs, dtype=dtype) for n in (rows, outputs))
            activation = perceptrons.Activation(name, 1.0)
            h, kept = products.forward(x, weight, torch.zeros(outputs), activation)
            parts = torch.zeros(products.n_parts(rows), inputs)
            grad = products.backward(h, weight, None, x, activation, parts)
            assert grad.shape == x.shape
            assert products.of_weight(kept, x, torch.float32).shape == weight.shape
    assert set(compiled) == {"product_kernel", "weight_kernel", "sum_kernel"}


def test_packing_compiles(compiled: list[str]) -> None:
    packing.pack_tokens(torch.arange(10), packing.plan_layout([3, 5, 2], 6, "cpu"))
    assert compiled


@pytest.mark.long(but=["MountainCar-v0"])
@pytest.mark.parametrize("n_envs", [1, 4096, 2**15])
@pytest.mark.parametrize("env_id", IDS)
def test_steps_of_environments_compile(env_id: str, n_envs: int, compiled: list[str]) -> None:
    env = on_device.DeviceVectorEnv(env_id, n_envs, "cpu")
    env.reset(seed=0)
    action = torch.as_tensor(env.single_action_space.sample())
    env.step(action.expand(n_envs, *action.shape))
    assert compiled == ["step_kernel"]
