"""How to write down a kernel's thread axis at some place in a file: by the name that the kernel itself declares."""

import ast

from mgpu_fix.catalogue import NoFix
from mgpu_fix.source import Names


class ThreadAxis:
    """The thread axis ``name`` of the kernel whose body is called ``kernel``."""

    def __init__(self, names: Names, name: str, kernel: str) -> None:
        self.names, self.name = names, name
        keywords = [k.value for k in names.nodes(ast.keyword) if k.arg == "thread_name"]
        own = [v for v in keywords if self._declares(v, kernel) and self.constant(v) in (None, name)]
        self._declared = own or [value for value in keywords if self.stands_for(value)]
        self._sure = bool(own)

    def at(self, place: ast.AST) -> str:
        """An expression for it: the variable that the kernel is declared with where ``place`` sees that, else a text.
        Raises NoFix where there is none."""
        for value in self._declared:
            known = self._sure or self.stands_for(value)
            if not isinstance(value, ast.Constant) and known and self._seen(value, place):
                return ast.unparse(value)
        if self.name.startswith("<"):
            raise NoFix(f"the kernel's thread axis, {self.name}, is no text, and its name is not seen here")
        return self._text()

    def follows(self, place: ast.AST) -> bool:
        """Whether ``place`` sees a variable that the kernel is declared with and that has no value of its own, as the
        parameter of a function that makes kernels: it is right for each of them."""
        return self._sure and any(
            self.constant(v) is None and not isinstance(v, ast.Constant) and self._seen(v, place)
            for v in self._declared
        )

    def stands_for(self, value: ast.expr) -> bool:
        """Whether an expression surely is the axis."""
        return self.constant(value) == self.name

    def constant(self, value: ast.AST | None) -> object:
        """What an expression is, where it is written out or a name for what is; None if that is not known."""
        if isinstance(value, ast.Constant):
            return value.value
        if isinstance(value, ast.Name):
            bound = self.names.binding(value.id, value)
            return self.constant(bound) if isinstance(bound, ast.Constant | ast.Name) and bound is not value else None
        return None

    def _declares(self, value: ast.expr, kernel: str) -> bool:
        """Whether ``thread_name=value`` belongs to the declaration of ``kernel``, itself or by its mesh."""
        for parent in self.names.ancestors(value):
            match parent:
                case ast.FunctionDef(name=name, decorator_list=decorators) if name == kernel:
                    return any(node is value for d in decorators for node in ast.walk(d))
                case ast.Call(args=args) if any(isinstance(a, ast.Name) and a.id == kernel for a in args):
                    return True
                case ast.stmt():
                    break
        return self._is_mesh_of(value, kernel)

    def _is_mesh_of(self, value: ast.expr, kernel: str) -> bool:
        """Whether the value stands in a mesh that has a name, which the declaration of ``kernel`` gives."""
        statement = self.names.statement(value)
        if not isinstance(statement, ast.Assign) or not isinstance(statement.targets[0], ast.Name):
            return False
        mesh = statement.targets[0].id
        for use in self.names.uses(mesh, self.names.home(mesh, statement.targets[0]) or self.names.source.tree):
            parent = self.names.parents[use]
            if isinstance(parent, ast.keyword) and parent.arg == "mesh":
                for around in self.names.ancestors(parent):
                    match around:
                        case ast.FunctionDef(name=name, decorator_list=decorators) if name == kernel:
                            return any(node is use for d in decorators for node in ast.walk(d))
                        case ast.Call(args=args) if any(isinstance(a, ast.Name) and a.id == kernel for a in args):
                            return True
        return False

    def _seen(self, value: ast.expr, place: ast.AST) -> bool:
        """Whether every name in an expression means the same at ``place``, and it is one that can be repeated."""
        if any(not isinstance(n, ast.Name | ast.Attribute | ast.expr_context) for n in ast.walk(value)):
            return False
        names = [n for n in ast.walk(value) if isinstance(n, ast.Name)]
        return all(
            self.names.home(n.id, n) is not None
            and self.names.home(n.id, n) is self.names.home(n.id, place)
            and self._is_fixed(n)
            for n in names
        )

    def _is_fixed(self, name: ast.Name) -> bool:
        """Whether a name is a parameter or is bound once: not in a loop, by the end of which it is something else."""
        binding = self.names.binding(name.id, name)
        if isinstance(binding, ast.arg | ast.alias | ast.FunctionDef | ast.ClassDef):
            return True
        loops = (ast.For, ast.AsyncFor, ast.While)
        home = self.names.home(name.id, name)
        return isinstance(binding, ast.expr) and not any(
            isinstance(parent, loops) and self.names.scope(parent) is home for parent in self.names.ancestors(binding)
        )

    def _text(self) -> str:
        """The name in the kind of quotes that its declaration has."""
        for value in self._declared:
            bound = self.names.binding(value.id, value) if isinstance(value, ast.Name) else value
            if isinstance(bound, ast.Constant) and bound.value == self.name:
                return self.names.source.segment(bound)
        return repr(self.name) if '"' in self.name or "\\" in self.name else f'"{self.name}"'
