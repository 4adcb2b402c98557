"""Checks every query before Spark analyses or runs it.

Spark's parser creates the plan. The check visits the whole plan: operators, expressions, subqueries, WITH queries,
and all other fields of a node. Each class must be in a list of `allowed`, each relation must be a view, and each
function must be allowed by name. The checked plan is the plan that runs; the text is not parsed again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.java_gateway import JavaObject

from polycast.errors import UsageError
from polycast.pipelines.sql import allowed
from polycast.pipelines.sql.java_objects import (
    Java,
    class_of,
    elements_of,
    fold_case,
    items,
    location_of,
    members_of,
)
from polycast.pipelines.sql.query_errors import mark, query_errors
from polycast.pipelines.sql.size_limits import SizeChecker, literal_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SETTINGS = {
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.eagerEvalOfUnresolvedInlineTable": "false",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.execution.topKSortFallbackThreshold": "100000",
    "spark.sql.maxBroadcastTableSize": str(256 * 1024 * 1024),
}
"""Settings of the parsing session: no variable substitution, no evaluation before the check, no files as tables,
and sorting on disk if memory is short."""
USER_DEFINED_TYPE = '"type":"udt"'
"""In the schema of a result. PySpark imports the module that such a type names."""
SYSTEM = (("builtin",), ("system", "builtin"))
CHANGES = re.compile(
    r"Insert|Create|Drop|Alter|Delete|Update|Merge|Truncate|Replace|LoadData|Cache|Set[A-Z]\w*Command"
)
Scope = Mapping[str, int]
"""WITH queries in scope, and the number of nodes of each."""


class Relation(NamedTuple):
    name: str
    quoted: bool
    start: int
    stop: int


@dataclass(frozen=True)
class CheckedQuery:
    """A query that may run, provided that its relations are views of the log."""

    text: str
    plan: Java
    relations: tuple[Relation, ...]
    command: str = ""
    """EXPLAIN or DESCRIBE; empty for a query."""


def check_query(spark: SparkSession, text: str) -> CheckedQuery:
    """Raises UsageError unless everything in the query is allowed."""
    check_text(text)
    plan = parse(spark, text)
    visit = PlanChecker(spark, text)
    command = allowed.COMMANDS.get(class_of(plan), "")
    try:
        if command:
            visit.enter_command(plan, command)
        else:
            visit.enter_query(plan)
    except RecursionError:
        raise UsageError("the query is nested too deeply", "simplify the query") from None
    return CheckedQuery(text, plan, tuple(visit.relations), command)


def check_text(text: str) -> None:
    """The parser expands CUBE inside GROUPING SETS to 2^N sets, before any check. Its lexer ignores case."""
    upper = text.upper()
    if "CUBE" in upper and "SETS" in upper:
        raise UsageError("a query cannot have both CUBE and GROUPING SETS", "write the sets out")


def parse(spark: SparkSession, text: str) -> Java:
    """Parses one statement, in the active session of this thread."""
    for name, value in SETTINGS.items():
        spark.conf.set(name, value)
    java = spark.sparkContext._jvm
    assert java
    java.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
    with query_errors(text):
        return spark._jsparkSession.sessionState().sqlParser().parsePlan(text)


def to_frame(spark: SparkSession, checked: CheckedQuery) -> DataFrame:
    """The lazy result of a query, or the result of a command, which runs at once."""
    from pyspark.sql import DataFrame

    java = spark.sparkContext._jvm
    assert java
    with query_errors(checked.text):
        rows = java.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, checked.plan)
        if USER_DEFINED_TYPE in rows.schema().json():
            raise UsageError("a column has a type that names a class to load")
        return DataFrame(rows, spark)


class PlanChecker:
    """Checks one plan. `enter` returns the number of nodes, with WITH queries expanded at each reference."""

    def __init__(self, spark: SparkSession, text: str) -> None:
        java = spark.sparkContext._jvm
        assert java
        self._java = java
        self._seen = java.java.util.IdentityHashMap()
        self._text = text
        self._nodes = 0
        self._sizes = SizeChecker()
        self.relations: list[Relation] = []
        self._special = {
            f"{allowed.CATALYST}analysis.UnresolvedAttribute": self._check_attribute,
            f"{allowed.CATALYST}analysis.UnresolvedFunction": self._check_function,
            f"{allowed.CATALYST}analysis.UnresolvedGenerator": self._check_generator,
            f"{allowed.CATALYST}analysis.UnresolvedTableValuedFunction": self._check_table_function,
            f"{allowed.CATALYST}expressions.Cube": self._check_grouping,
            f"{allowed.CATALYST}expressions.Rollup": self._check_grouping,
            f"{allowed.CATALYST}expressions.GroupingSets": self._check_grouping,
        }

    def enter_command(self, plan: Java, command: str) -> None:
        if command == "EXPLAIN":
            self.enter_query(plan.logicalPlan())
        elif command == "DESCRIBE QUERY":
            self.enter_query(plan.plan())
        else:
            if plan.isExtended():
                raise self._reject("DESCRIBE EXTENDED is not allowed", plan)
            self._add_relation(plan.relation())

    def enter_query(self, plan: Java) -> None:
        """Checks every node, and that the check has reached every leaf that Spark knows of."""
        self.enter(plan, {})
        for leaf in items(plan.collectLeaves()):
            if not self._seen.containsKey(leaf):
                short = class_of(leaf).rpartition(".")[2]
                raise self._reject(f"{short} is in a part of the plan that was not checked", leaf)

    def enter(self, value: Any, scope: Scope) -> int:
        if not isinstance(value, JavaObject):
            self._check_plain(value)
            return 0
        name = class_of(value)
        if name in allowed.VALUES:
            return 0
        if name in allowed.HOLDERS:
            return sum(self.enter(each, scope) for each in elements_of(name, value))
        if name not in allowed.OPERATORS and name not in allowed.EXPRESSIONS:
            raise self._reject_class(name, value)
        return self._enter_node(name, value, scope)

    def _enter_node(self, name: str, node: Java, scope: Scope) -> int:
        if self._seen.put(node, True) is not None:
            return 0
        self._nodes += 1
        if self._nodes > allowed.NODES_AT_MOST:
            raise UsageError(f"the query has more than {allowed.NODES_AT_MOST:,} nodes", "simplify the query")
        match name.rpartition(".")[2]:
            case "Literal":
                return 1
            case "UnresolvedRelation":
                return self._enter_relation(node, scope)
            case "UnresolvedWith":
                return self._enter_with(node, scope)
        if check := self._special.get(name):
            check(node)
        return self._check_expanded(1 + sum(self.enter(each, scope) for each in members_of(node)))

    def _check_expanded(self, nodes: int) -> int:
        if nodes > allowed.EXPANDED_NODES_AT_MOST:
            limit = f"{allowed.EXPANDED_NODES_AT_MOST:,}"
            raise UsageError(
                f"the query has more than {limit} nodes with WITH queries expanded", "simplify the query"
            )
        return nodes

    # -- relations ---------------------------------------------------------------------------------------

    def _enter_relation(self, node: Java, scope: Scope) -> int:
        name = self._name_of(node)
        if not node.options().isEmpty() or node.isStreaming():
            raise self._reject("views have no options", node)
        if fold_case(name) in scope:
            return 1 + scope[fold_case(name)]
        self._add_relation(node)
        return 1

    def _add_relation(self, node: Java) -> None:
        start, stop = location_of(node)
        quoted = self._text[start : start + 1] == "`"
        self.relations.append(Relation(self._name_of(node), quoted, start, stop))

    def _name_of(self, relation: Java) -> str:
        parts = list(items(relation.multipartIdentifier()))
        if len(parts) != 1:
            raise self._reject("a query reads views only, and their names have one part", relation)
        self._check_plain(parts[0])
        return str(parts[0])

    def _enter_with(self, node: Java, scope: Scope) -> int:
        """Each WITH query sees those before it."""
        if node.allowRecursion():
            raise self._reject("WITH RECURSIVE is not allowed: it has no limit of rows", node)
        inner = dict(scope)
        for relation in items(node.cteRelations()):
            name = str(relation._1())
            self._check_plain(name)
            inner[fold_case(name)] = self.enter(relation._2(), dict(inner))
        return self._check_expanded(1 + self.enter(node.child(), inner))

    # -- names -------------------------------------------------------------------------------------------

    def _check_plain(self, value: Any) -> None:
        if isinstance(value, str) and fold_case(value) == allowed.HIDDEN:
            raise UsageError(f"{allowed.HIDDEN} is not allowed: it reveals file paths")

    def _check_attribute(self, node: Java) -> None:
        parts = list(items(node.nameParts()))
        if len(parts) == 1 and fold_case(parts[0]) in allowed.UNQUALIFIED:
            reason = allowed.REFUSED[fold_case(parts[0])]
            raise self._reject(f"{parts[0]} is not allowed: {reason}", node, "rename the column")

    def _check_function(self, node: Java) -> None:
        name = self._function(node, list(items(node.nameParts())), allowed.FUNCTIONS, allowed.REFUSED)
        self._check_arguments(node, name, list(items(node.arguments())))

    def _check_arguments(self, node: Java, name: str, arguments: list[Java]) -> None:
        with self._located(node):
            self._sizes.check_function(name, arguments)
            if name in allowed.SCHEMAS and len(arguments) > allowed.SCHEMAS[name]:
                self._check_schema(name, arguments[allowed.SCHEMAS[name]])

    def _check_schema(self, name: str, argument: Java) -> None:
        """Parses the type as Spark does first. Spark would parse any other text as JSON."""
        is_call = class_of(argument) == f"{allowed.CATALYST}analysis.UnresolvedFunction"
        if is_call and list(items(argument.nameParts()))[-1].lower() in allowed.SCHEMA_FUNCTIONS:
            return  # the call itself is checked like every other one
        text = literal_of(argument)
        if not isinstance(text, str):
            functions = " or ".join(allowed.SCHEMA_FUNCTIONS)
            raise UsageError(f"the type argument of {name} must be a literal, or a call of {functions}")
        try:
            self._java.org.apache.spark.sql.types.DataType.fromDDL(text)
        except Exception:  # the parser's errors have no common class in Python
            raise UsageError(f"{name} takes a type such as 'a int, b array<string>'") from None

    def _check_generator(self, node: Java) -> None:
        """LATERAL VIEW."""
        name = node.name()
        qualified = [part.get() for part in (name.catalog(), name.database()) if part.isDefined()]
        found = self._function(node, [*qualified, name.funcName()], allowed.FUNCTIONS, allowed.REFUSED)
        self._check_arguments(node, found, list(items(node.children())))

    def _check_table_function(self, node: Java) -> None:
        parts = list(items(node.name()))
        found = self._function(node, parts, allowed.TABLE_FUNCTIONS, allowed.REFUSED_TABLE_FUNCTIONS)
        self._check_arguments(node, found, list(items(node.functionArgs())))

    def _function(self, node: Java, parts: list[str], known: frozenset[str], refused: Mapping[str, str]) -> str:
        *qualified, last = (part.lower() for part in parts)
        if qualified and tuple(qualified) not in SYSTEM:
            raise self._reject(f"the function {'.'.join(parts)} is not built into Spark", node)
        if last not in known:
            reason = refused.get(last)
            problem = f"is not allowed: {reason}" if reason else "is unknown"
            raise self._reject(f"the function {last} {problem}", node)
        return last

    def _check_grouping(self, node: Java) -> None:
        with self._located(node):
            self._sizes.check_grouping(class_of(node).rpartition(".")[2], node)

    # -- errors ------------------------------------------------------------------------------------------

    def _reject_class(self, name: str, value: Java) -> UsageError:
        short = name.rpartition(".")[2].partition("$")[0]
        if CHANGES.match(short):
            hint = "--into TOPIC publishes the rows of a query, --to PATH writes them to files"
            return self._reject(f"{short} is not allowed: a query cannot change data", value, hint)
        return self._reject(f"{short} is not allowed in a query", value)

    def _reject(self, message: str, node: Java, hint: str = "") -> UsageError:
        return to_usage_error(message, self._text, *location_of(node), hint)

    @contextmanager
    def _located(self, node: Java) -> Iterator[None]:
        """Adds the location of a node to errors raised inside."""
        try:
            yield
        except UsageError as error:
            raise self._reject(str(error), node, error.hint) from None


def to_usage_error(message: str, text: str, start: int, stop: int, hint: str = "") -> UsageError:
    """Marks the location in the text, if it is known."""
    return UsageError(f"{message}\n{mark(text, start, stop)}" if start < stop else message, hint)
