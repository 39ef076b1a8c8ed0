"""Prints every mutation of the Python source on the standard input, as JSON: start, end, text."""

import ast
import json
import sys

source = sys.stdin.read()
lines = [0]
for line in source.encode().splitlines(keepends=True):
    lines.append(lines[-1] + len(line))

COMPARISONS = {
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
FIELDS = {
    "payment_id": "platform_payment_id",
    "platform_payment_id": "payment_id",
    "platform_batch_id": "platform_payment_id",
    "biller_id": "account_id",
    "account_id": "biller_id",
    "initiated_at": "posted_at",
    "posted_at": "initiated_at",
}
found = []


def place(line, column):
    return len(source.encode()[: lines[line - 1] + column].decode())


def start(node):
    return place(node.lineno, node.col_offset)


def end(node):
    return place(node.end_lineno, node.end_col_offset)


def add(first, last, text):
    found.append({"start": first, "end": last, "text": text})


def between(left, right, word, other):
    at = source.find(word, end(left), start(right))
    if at >= 0:
        add(at, at + len(word), other)


def visit(node, docstring=False):
    match node:
        case ast.JoinedStr():
            return  # what stands inside has no place of its own before Python 3.12
        case ast.Compare():
            for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators):
                if type(op) in COMPARISONS:
                    between(left, right, *COMPARISONS[type(op)])
        case ast.BoolOp():
            words = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:]):
                between(left, right, *words)
        case ast.BinOp(op=ast.Add()):
            between(node.left, node.right, "+", "-")
        case ast.BinOp(op=ast.Sub()):
            between(node.left, node.right, "-", "+")
        case ast.UnaryOp(op=ast.Not()):
            add(start(node), start(node.operand), "")
        case ast.Constant(value=bool()):
            add(start(node), end(node), str(not node.value))
        case ast.Constant(value=int() | float()):
            add(start(node), end(node), str(node.value + 1))
        case ast.Constant(value=str()):
            if node.value in FIELDS:
                add(start(node), end(node), repr(FIELDS[node.value]))
            elif len(node.value) > 2 and node.value.replace("_", "").replace("-", "").isalpha():
                add(start(node), end(node), repr(node.value + "x"))
        case ast.Expr(value=ast.Constant(value=str())):
            return  # a comment
        case ast.Expr() | ast.Raise():
            add(start(node), end(node), "pass")
        case ast.If() | ast.While() | ast.IfExp():
            if not isinstance(node.test, ast.Constant):
                add(start(node.test), end(node.test), "True")
                add(start(node.test), end(node.test), "False")
    for child in ast.iter_child_nodes(node):
        visit(child)


visit(ast.parse(source))
print(json.dumps(found))
