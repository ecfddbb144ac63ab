"""Names of methods: found, refused, suggested."""

import ast
import inspect
from dataclasses import dataclass
from typing import ClassVar

import pytest

from tests.core.helpers import refused
from vicoset import methods
from vicoset.errors import MethodError, UnknownNameError
from vicoset.methods import base, registry


@pytest.fixture
def tables(monkeypatch):
    """Registrations of a test end with it."""
    monkeypatch.setattr(registry, "_SELECTORS", dict(registry._SELECTORS))
    monkeypatch.setattr(registry, "_REALISERS", dict(registry._REALISERS))


def made(**changes):
    """A selector class with changes."""
    content = {
        "name": "mine",
        "query_aware": False,
        "needs": frozenset(),
        "select": lambda self, scene, keep: None,
        "realise": lambda self, scene, selection: None,
    }
    content = {k: v for k, v in {**content, **changes}.items() if v is not ...}
    return type("Mine", (), content)


def test_what_is_registered():
    assert {"gmc", "random"} <= set(registry.names().selectors)
    assert {"drop", "transport"} <= set(registry.names().realisers)
    for name in registry.names().selectors:
        assert registry.selector(name).name == name
    for name in registry.names().realisers:
        assert registry.realiser(name).name == name
    assert registry.selector("gmc") == methods.GMC()


def test_a_new_method_is_one_class(tables):
    @registry.register_selector
    @dataclass(frozen=True)
    class First:
        name: ClassVar[str] = "first"
        query_aware: ClassVar[bool] = False
        needs: ClassVar[frozenset[str]] = frozenset()

        def select(self, scene, keep):
            raise NotImplementedError

    assert registry.selector("first") == First()
    assert "first" in registry.names().selectors


@pytest.mark.parametrize("kind", ["selector", "realiser"])
def test_a_name_is_taken_once(tables, kind):
    register = getattr(registry, f"register_{kind}")
    register(made())
    with refused(MethodError, f"{kind} 'mine' is registered already", "another name"):
        register(made())


def test_a_selector_and_a_realiser_may_share_a_name(tables):
    both = made()
    assert registry.register_selector(both) is registry.register_realiser(both)


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        ({"name": ...}, "Mine.name is None"),
        ({"name": "Mine"}, "lower-case"),
        ({"name": "a+b"}, "'a+b'"),
        ({"name": "a@2"}, "'a@2'"),
        ({"needs": ...}, "needs None"),
        ({"needs": {"views"}}, "frozenset"),
        ({"needs": frozenset({"vews"})}, "allowed are frozensets of current"),
        ({"query_aware": ...}, "query-aware"),
        ({"select": ...}, "no method select()"),
    ],
)
def test_an_incomplete_selector_is_refused(tables, changes, fragment):
    with refused(MethodError, fragment):
        registry.register_selector(made(**changes))
    assert "mine" not in registry.names().selectors


def test_an_incomplete_realiser_is_refused(tables):
    with refused(MethodError, "no method realise()"):
        registry.register_realiser(made(realise=...))


def test_an_unknown_name_suggests_the_nearest():
    with refused(UnknownNameError, "'gcm' is no selector", "gmc, ", "Did you mean 'gmc'?"):
        registry.selector("gcm")
    with refused(UnknownNameError, "'Drop' is no realiser", "Did you mean 'drop'?"):
        registry.realiser("Drop")
    with pytest.raises(UnknownNameError) as caught:
        registry.realiser("zzz")
    assert "Did you mean" not in str(caught.value)


def test_methods_declare_what_they_read():
    """A method whose code mentions views declares them, and only such a method does."""
    for cls in (methods.GMC, methods.Random, methods.Transport, methods.Drop):
        tree = ast.parse(inspect.getsource(cls))
        reads = any(isinstance(n, ast.Attribute) and n.attr == "views" for n in ast.walk(tree))
        assert (base.VIEWS in cls.needs) == reads, cls
