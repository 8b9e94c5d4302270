"""``ref[...]`` for an index that was an argument."""

import libcst as cst


def tight(value: cst.BaseExpression) -> cst.BaseExpression:
    """An expression that ``[...]`` or an attribute may follow."""
    if isinstance(value, cst.Name | cst.Attribute | cst.Subscript | cst.Call) or value.lpar:
        return value
    return value.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def indexed(ref: cst.BaseExpression, index: cst.BaseExpression) -> cst.Subscript:
    """``ref[index]``: a tuple's elements are several indices, and ``slice(a, b)`` is ``a:b``."""
    elements = [index]
    if isinstance(index, cst.Tuple) and not index.elements:
        elements = [cst.Ellipsis()]
    elif isinstance(index, cst.Tuple) and all(isinstance(e, cst.Element) for e in index.elements):
        elements = [element.value for element in index.elements]
    last = len(elements) - 1
    comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    parts = [
        cst.SubscriptElement(_index(element), comma if i < last else cst.MaybeSentinel.DEFAULT)
        for i, element in enumerate(elements)
    ]
    return cst.Subscript(tight(ref), parts)


def _index(element: cst.BaseExpression) -> cst.BaseSlice:
    match element:
        case cst.Call(func=cst.Name(value="slice"), args=args) if args and not any(a.keyword or a.star for a in args):
            parts = [None if _is_none(a.value) else a.value for a in args]
            lower, upper, step = (None, *parts, None) if len(parts) == 1 else (*parts, None)[:3]
            second = cst.Colon() if step else cst.MaybeSentinel.DEFAULT
            return cst.Slice(lower, upper, step, second_colon=second)
        case cst.Name(value="Ellipsis"):
            return cst.Index(cst.Ellipsis())
    return cst.Index(element)


def _is_none(value: cst.BaseExpression) -> bool:
    return isinstance(value, cst.Name) and value.value == "None"
