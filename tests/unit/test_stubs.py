"""The committed stub declares what the compiled module has, and nothing else."""

import ast
from pathlib import Path

import sharpwave
from sharpwave import _native

STUB = ast.parse((Path(sharpwave.__file__).parent / "_native.pyi").read_text())


def declared_names(body: list[ast.stmt]) -> set[str]:
    names = set()
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return public(names)


def public(names: set[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def test_every_public_name_of_the_module_is_in_the_stub_and_vice_versa() -> None:
    assert declared_names(STUB.body) == public(set(vars(_native)))


def test_every_public_member_of_a_native_class_is_in_the_stub_and_vice_versa() -> None:
    classes = [node for node in STUB.body if isinstance(node, ast.ClassDef)]
    declared = {node.name: declared_names(node.body) for node in classes if node.name[0] != "_"}
    actual = {name: public(set(vars(getattr(_native, name)))) for name in declared}
    assert declared == actual
