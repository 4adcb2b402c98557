"""Queries that the SQL check accepts and rejects. Queries are only parsed, not run."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from polycast.errors import UsageError
from polycast.pipelines.sql import allowed
from polycast.pipelines.sql.gate import CheckedQuery, check_query, parse, to_frame
from polycast.pipelines.sql.java_objects import fold_case

Gate = Callable[[str], CheckedQuery]


@pytest.fixture(scope="module")
def gate(spark: SparkSession) -> Gate:
    session = spark.newSession()
    return lambda text: check_query(session, text)


FINE = """
SELECT topic, count(*) AS n FROM messages WHERE offset < 6 GROUP BY topic HAVING n > 1 ORDER BY n DESC, 1 LIMIT 3 OFFSET 1;
SELECT DISTINCT m.*, * EXCEPT (payload) FROM messages m (a, b, c, d, e, f, g, h)
WITH a AS (SELECT 1 x), b(y) AS (SELECT x FROM a) SELECT * FROM b JOIN a ON b.y = a.x LEFT JOIN messages m USING (topic)
SELECT 1 FROM messages NATURAL JOIN messages CROSS JOIN messages LEFT SEMI JOIN messages RIGHT JOIN messages ON true
SELECT * FROM messages WHERE topic IN (SELECT topic FROM `orders.>`) AND EXISTS (SELECT 1) AND offset = (SELECT max(offset) FROM messages)
SELECT CASE WHEN a > 1 THEN 'x' ELSE NULL END, CASE a WHEN 1 THEN 2 END, CAST(a AS int), a::string, TRY_CAST(a AS double) FROM messages
SELECT a LIKE 'x%' ESCAPE '/', a RLIKE 'x', a NOT LIKE ALL ('a', 'b'), a ILIKE ANY ('x'), a BETWEEN 1 AND 2, a IS NOT NULL, a IS UNKNOWN
SELECT a IS DISTINCT FROM b, a <=> b, NOT a, -a, +a, ~a, a || b, a % 2, a DIV 2, a & 1 | 2 ^ 3, a << 1, a >> 1, a >>> 1, a != b, a IN (1, 2)
SELECT sum(x) OVER (PARTITION BY topic ORDER BY time ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW), rank() OVER w FROM messages WINDOW w AS (ORDER BY time)
SELECT sum(x) OVER (ORDER BY y RANGE BETWEEN 1 PRECEDING AND UNBOUNDED FOLLOWING) FROM messages QUALIFY row_number() OVER (ORDER BY y) = 1
SELECT window(time, '1 minute') AS m, count(*) FROM messages WATERMARK time DELAY OF INTERVAL 10 SECONDS GROUP BY window(time, '1 minute')
SELECT parse_json(cast(payload AS string)):customer.name::string, a.b.c, a[1], m['x'].y, payload:items[0].price FROM messages
SELECT explode(array(1, 2)), transform(array(1), (x, i) -> x + i), aggregate(array(1), 0, (a, b) -> a + b) FROM messages LATERAL VIEW OUTER explode(x) t AS y
SELECT * FROM messages TABLESAMPLE (10 PERCENT) REPEATABLE (3), range(0, 10, 2) r, UNNEST(array(1)) AS u(x), LATERAL explode(array(1)) AS e(x)
SELECT * FROM VALUES (1, DATE '2020-01-01', TIMESTAMP '2020-01-01 00:00:00', INTERVAL 1 DAY, INTERVAL '1-2' YEAR TO MONTH, X'ff', 1.5, 1e3, 1L, TRUE, NULL) AS t(a, b)
VALUES (1, abs(-1)), (2, 1 + 1)
TABLE messages
FROM messages SELECT topic
SELECT 1 UNION ALL SELECT 2 INTERSECT SELECT 3 EXCEPT SELECT 4
SELECT topic, grouping(topic), count(*) FROM messages GROUP BY CUBE(topic, dialect)
SELECT topic, count(*) FROM messages GROUP BY GROUPING SETS ((topic), ())
SELECT topic, count(*) FROM messages GROUP BY ROLLUP(topic) ORDER BY ALL
SELECT * FROM (SELECT topic, dialect, 1 AS n FROM messages) PIVOT (sum(n) FOR dialect IN ('hermod' AS h, 'ubre'))
SELECT * FROM messages UNPIVOT (v FOR k IN (offset, sequence))
SELECT m.topic FROM messages m, LATERAL (SELECT m.topic AS t2)
SELECT EXTRACT(year FROM time), position('a' IN topic), trim(BOTH 'x' FROM topic), trim(LEADING 'x' FROM topic), rtrim(topic), substring(topic FROM 1 FOR 2), overlay(topic PLACING 'x' FROM 1)
SELECT CURRENT_DATE, CURRENT_TIMESTAMP, now(), TIMESTAMPADD(HOUR, 1, time), TIMESTAMPDIFF(HOUR, time, time), dateadd(DAY, 1, time), INTERVAL '1' DAY
SELECT struct(1 AS a), named_struct('a', 1), (a, b), IF(a, b, c), first(topic IGNORE NULLS), last(topic), any_value(topic), count(DISTINCT topic) FILTER (WHERE offset > 1)
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY offset), listagg(topic, ',') WITHIN GROUP (ORDER BY topic), topic COLLATE UTF8_LCASE FROM messages
SELECT CAST(a AS array<struct<x: int, y: map<string, decimal(10, 2)>>>), CAST(a AS timestamp_ntz), CAST(a AS variant), CAST(a AS char(3)), CAST(a AS interval day to second)
SELECT * FROM messages DISTRIBUTE BY topic SORT BY topic
FROM messages |> WHERE offset > 1 |> AGGREGATE count(*) AS n GROUP BY topic |> ORDER BY n |> LIMIT 3 |> EXTEND n + 1 AS m |> SELECT m
SELECT system.builtin.abs(1), builtin.upper('a'), mask(topic, upperChar => 'Q') FROM messages
SELECT from_json('{"a": 1}', 'a int'), from_csv('1', 'a int'), to_json(struct(1)), repeat('ab', 3), lpad(topic, 10, ' '), format_string('%05d', 3), window(time, '1 hour', '1 minute')
SELECT from_json('{}', 'STRUCT<a: ARRAY<INT>>'), from_json('{}', schema_of_json('{"a": 1}')), variant_get(parse_json('1'), '$', 'int'), from_json('[]', 'array<int>')
SELECT 'DROP TABLE x; INSERT', "TRANSFORM" /* INSERT INTO x */ -- DROP
EXPLAIN SELECT * FROM messages
EXPLAIN FORMATTED SELECT 1
DESCRIBE messages
DESC QUERY SELECT 1
""".strip().splitlines()  # noqa: E501


@pytest.mark.parametrize("query", FINE)
def test_queries_pass(gate: Gate, query: str) -> None:
    gate(query)


PYTHON_TYPE = '{"type": "udt", "pyClass": "this.Zen", "serializedClass": "", "sqlType": "string"}'
JAVA_TYPE = '{"type":"udt","class":"org.apache.spark.ml.linalg.VectorUDT","pyClass":null,"sqlType":"string"}'
"""Types that make Spark import a module or load a class."""

ATTACKS = [
    ("SELECT TRANSFORM(1) USING 'id -un' AS (x STRING)", "ScriptTransformation"),
    ("FROM messages MAP topic USING 'id' AS x", "ScriptTransformation"),
    ("SELECT * FROM (SELECT TRANSFORM(topic) USING 'cat' FROM messages)", "ScriptTransformation"),
    ("WITH a AS (SELECT TRANSFORM(1) USING 'id') SELECT 1", "ScriptTransformation"),
    ("SELECT (SELECT TRANSFORM(1) USING 'id')", "ScriptTransformation"),
    ("SELECT * FROM messages WHERE EXISTS (SELECT TRANSFORM(1) USING 'id')", "ScriptTransformation"),
    ("SELECT 1 -- a comment\rFROM parquet.`/etc/passwd`", "names have one part"),
    ("-- a comment\\\n INSERT INTO x SELECT 1\nDROP TABLE messages", "DropTable"),
    ("SELECT 1 -- SELECT\rUNION SELECT java_method('java.lang.System', 'exit')", "java_method"),
    ("/* /* */ SELECT 1 */ INSERT OVERWRITE DIRECTORY '/tmp/x' USING json SELECT 1", "InsertIntoDir"),
    ("INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' USING json SELECT 1", "InsertIntoDir"),
    (
        "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
        "InsertIntoStatement is not allowed: a query cannot change data",
    ),
    (
        "FROM messages INSERT OVERWRITE t SELECT *",
        "InsertIntoStatement is not allowed: a query cannot change data",
    ),
    ("CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')", "Create"),
    ("CREATE TABLE t USING parquet LOCATION '/tmp/x' AS SELECT 1", "CreateTableAsSelect"),
    ("CREATE TEMPORARY FUNCTION f AS 'java.lang.System'", "Create"),
    ("CREATE TEMPORARY FUNCTION f() RETURNS INT RETURN 1", "Create"),
    ("DROP TABLE messages", "DropTable"),
    ("DROP VIEW messages", "DropView"),
    ("ADD JAR '/tmp/x.jar'", "AddJar"),
    ("SET spark.sql.runSQLOnFiles=true", "SetCommand"),
    ("SET", "SetCommand"),
    ("RESET", "ResetCommand"),
    ("SELECT * FROM text.`/etc/passwd`", "names have one part"),
    ("SELECT * FROM polycast.`/`", "names have one part"),
    ("SELECT * FROM spark_catalog.default.messages", "names have one part"),
    ("SELECT * FROM global_temp.messages", "names have one part"),
    ("SELECT * FROM messages WITH ('path' = '/etc/passwd')", "views have no options"),
    ("SELECT * FROM messages VERSION AS OF 1", "RelationTimeTravel"),
    ("SELECT * FROM STREAM messages", "NamedStreamingRelation"),
    ("SELECT * FROM STREAM(messages)", "NamedStreamingRelation"),
    ("SELECT * FROM read_files('/etc')", "read_files"),
    ("SELECT * FROM python_worker_logs()", "it reveals details of the Spark process"),
    ("SELECT * FROM LATERAL java_method('a', 'b')", "java_method"),
    ("SELECT * FROM messages LATERAL VIEW reflect('a', 'b') t AS x", "it calls Java"),
    ("SELECT java_method('java.lang.System', 'getProperty', 'user.home')", "it calls Java"),
    ("SELECT system.builtin.java_method('java.lang.System', 'getenv')", "it calls Java"),
    ("SELECT `Reflect`('java.lang.System', 'getenv')", "it calls Java"),
    ("SELECT try_reflect('java.lang.System', 'getenv')", "it calls Java"),
    ("SELECT a.b.reflect('x')", "is not built into Spark"),
    ("SELECT other(1)", "the function other is unknown"),
    ("SELECT xpath('<a/>', 'a')", "XML can reference files and hosts"),
    ("SELECT from_xml('<a/>', 'a int')", "XML can reference files and hosts"),
    ("SELECT input_file_name() FROM messages", "it reveals file paths"),
    ("SELECT max(input_file_block_start()) OVER () FROM messages", "it reveals file paths"),
    ("SELECT transform(array(1), x -> input_file_name())", "it reveals file paths"),
    ("VALUES (input_file_name())", "it reveals file paths"),
    ("SELECT _metadata FROM messages", "_metadata is not allowed"),
    ("SELECT `_Metadata`.file_path FROM messages", "_metadata is not allowed"),
    ("SELECT messages._metadata.* FROM messages", "_metadata is not allowed"),
    ("SELECT * FROM messages JOIN messages USING (_metadata)", "_metadata is not allowed"),
    ("SELECT * FROM messages ORDER BY _metadata.file_path", "_metadata is not allowed"),
    ("SELECT * FROM messages UNPIVOT (v FOR k IN (_metadata))", "_metadata is not allowed"),
    ("SELECT current_user", "it reveals details of the Spark process"),
    ("SELECT user FROM (SELECT 1)", "it reveals details of the Spark process"),
    ("SELECT current_catalog(), current_database()", "it reveals details of the Spark process"),
    ("SELECT `u\N{LATIN SMALL LETTER LONG S}er`", "it reveals details of the Spark process"),
    (
        "SELECT `SESS\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}ON_USER`",
        "it reveals details of the Spark process",
    ),
    ("SELECT `sess\N{LATIN SMALL LETTER DOTLESS I}on_user`", "it reveals details of the Spark process"),
    ("SELECT version()", "it reveals details of the Spark process"),
    ("SELECT IDENTIFIER('topic') FROM messages", "ExpressionWithUnresolvedIdentifier"),
    ("SELECT * FROM IDENTIFIER('parquet.`/x`')", "names have one part"),
    ("SELECT * FROM IDENTIFIER('a' || 'b')", "PlanWithUnresolvedIdentifier"),
    ("SELECT IDENTIFIER('java_method')('a', 'b')", "not allowed"),
    ("SELECT :x", "NamedParameter"),
    ("SELECT ?", "PosParameter"),
    ("EXECUTE IMMEDIATE 'DROP TABLE x'", "ExecuteImmediate"),
    ("BEGIN SELECT 1; DROP TABLE x; END", "CompoundBody"),
    ("DECLARE x INT DEFAULT 1", "CreateVariable"),
    ("SET VAR x = 1", "SetVariable"),
    ("SELECT 1; DROP TABLE messages", "Syntax error"),
    ("SELECT 1; SELECT 2", "Syntax error"),
    ("EXPLAIN SELECT java_method('a', 'b')", "it calls Java"),
    ("EXPLAIN DROP TABLE messages", "DropTable"),
    ("EXPLAIN INSERT INTO x SELECT 1", "InsertIntoStatement"),
    ("EXPLAIN EXPLAIN SELECT 1", ""),
    ("EXPLAIN CODEGEN SELECT * FROM text.`/etc/passwd`", "names have one part"),
    ("DESCRIBE QUERY SELECT * FROM text.`/etc/passwd`", "names have one part"),
    ("DESCRIBE QUERY SELECT reflect('a', 'b')", "it calls Java"),
    ("DESCRIBE EXTENDED messages", "DESCRIBE EXTENDED"),
    ("DESCRIBE TABLE EXTENDED messages AS JSON", ""),
    ("DESCRIBE parquet.`/x`", "names have one part"),
    ("DESCRIBE messages topic", "DescribeColumn"),
    ("DESCRIBE FUNCTION abs", "DescribeFunction"),
    ("SHOW TABLES", "ShowTables"),
    ("SHOW VIEWS", "ShowViews"),
    ("SELECT /*+ REPARTITION(1000000000) */ * FROM messages", "UnresolvedHint"),
    ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT * FROM r", "WITH RECURSIVE"),
    ("CACHE TABLE messages", "Cache"),
    ("SELECT raise_error('x')", "it fails on purpose"),
    ("FROM (SELECT TRANSFORM(1) USING 'id -un' AS (x STRING)) |> WHERE true", "ScriptTransformation"),
    ("SELECT java_method('java.lang.System', 'exit', 1) |> LIMIT 1", "it calls Java"),
    ("FROM text.`/etc/passwd` |> ORDER BY 1", "names have one part"),
    ("FROM text.`/etc/passwd` |> UNION ALL SELECT 1", "names have one part"),
    (f"SELECT from_json('{{}}', '{PYTHON_TYPE}')", "takes a type such as"),
    (f"SELECT system.builtin.From_CSV('1', '{JAVA_TYPE}')", "takes a type such as"),
    (f"SELECT from_json('{{}}', ' ' || '{JAVA_TYPE}')", "must be a literal, or a call of"),
    ("SELECT from_json('{}', payload) FROM messages", "must be a literal, or a call of"),
    (f"SELECT variant_get(parse_json('1'), '$', '{PYTHON_TYPE}')", "takes a type such as"),
    (f"SELECT * FROM messages LATERAL VIEW from_json('', '{JAVA_TYPE}') t AS x", "takes a type such as"),
    (
        f"SELECT * FROM messages LATERAL VIEW explode(from_json('[]', '{PYTHON_TYPE}')) t AS x",
        "takes a type such as",
    ),
]


@pytest.mark.parametrize(("query", "words"), ATTACKS)
def test_attacks_are_rejected(gate: Gate, query: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        gate(query)
    assert words in str(refused.value)


def test_the_rejected_part_is_marked(gate: Gate) -> None:
    with pytest.raises(UsageError) as refused:
        gate("SELECT 1,\n reflect('a') FROM messages")
    assert str(refused.value).splitlines()[1:] == [
        "  SELECT 1,",
        "   reflect('a') FROM messages",
        "   ^^^^^^^^^^^^",
    ]


def test_no_result_has_a_type_that_names_a_class(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if a function takes types in an argument that is not listed."""
    monkeypatch.setattr(allowed, "SCHEMAS", {})
    session = spark.newSession()
    for kind in (PYTHON_TYPE, JAVA_TYPE):
        several = f'{{"type": "array", "elementType": {kind}, "containsNull": true}}'
        query = f"SELECT 1, array(struct(from_json('[]', '{several}')))"
        with pytest.raises(UsageError, match="names a class to load"):
            to_frame(session, check_query(session, query))
    assert "this" not in sys.modules
    to_frame(session, check_query(session, """SELECT 1 AS `"type":"udt"`"""))


def test_names_are_equal_as_in_java(spark: SparkSession) -> None:
    """For every character that may equal an ASCII letter."""
    java: Any = spark.sparkContext._jvm
    characters = [chr(number) for number in range(128, 0xD800)]
    alike = [each for each in characters if fold_case(each).isascii() or each.casefold().isascii()]
    alike += [each for each in characters if each.isalpha() and unicodedata.normalize("NFKD", each)[0].isascii()]
    assert {"\u0130", "\u0131", "\u017f", "\u212a"} <= set(alike)
    for character in alike:
        upper = java.java.lang.Character.toUpperCase(ord(character))
        assert ord(fold_case(character)) == java.java.lang.Character.toLowerCase(upper), character


def test_variables_are_not_substituted(spark: SparkSession) -> None:
    session = spark.newSession()
    text = "${env:HOME} ${system:user.name} ${spark:app.id}"
    assert os.environ["HOME"]
    assert to_frame(session, check_query(session, f"SELECT '{text}' AS x")).collect()[0]["x"] == text


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("SELECT repeat('x', 2000000000)", "at most 1,000,000"),
        ("SELECT repeat('x', offset) FROM messages", "at most 1,000,000"),
        (
            "WITH a AS (SELECT repeat('x', 10000) s) SELECT repeat(s, 10000) FROM a",
            "multiply the size by 100,000,000",
        ),
        ("SELECT space(2000000000)", "at most 1,000,000"),
        ("SELECT lpad('x', 2000000000, 'y')", "at most 1,000,000"),
        ("SELECT array_repeat(1, 2000000000)", "at most 1,000,000"),
        ("SELECT format_string('%2000000000d', 1)", "widths of at most 4 digits"),
        ("SELECT format_string(topic, 1) FROM messages", "widths of at most 4 digits"),
        ("SELECT sequence(1, 2000000000)", "arrays of any length"),
        ("SELECT stack(2000000000, 1)", "at most 1,000,000"),
        ("SELECT * FROM range(0, 1, 1, 2000000000)", "takes at most 3 arguments"),
        ("SELECT approx_count_distinct(topic, 0.0000001) FROM messages", "takes at most 1 arguments"),
        ("SELECT window(time, '1000 days', '1 microsecond') FROM messages", "at most 1,000 windows"),
        ("SELECT window(time, '1000 days', topic) FROM messages", "at most 1,000 windows"),
        (f"SELECT 1 FROM a GROUP BY CUBE({', '.join(f'c{n}' for n in range(40))})", "at most 1,024 grouping sets"),
        ("SELECT 1 FROM a GROUP BY GROUPING SETS (CUBE(b))", "both CUBE and GROUPING SETS"),
        (f"SELECT {'abs(' * 200}1{')' * 200}", "nested too deeply"),
    ],
)
def test_sizes_are_limited(gate: Gate, query: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        gate(query)
    assert words in str(refused.value)


def test_nodes_are_limited(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allowed, "NODES_AT_MOST", 10)
    gate("SELECT 1, 2, 3")
    with pytest.raises(UsageError, match="more than 10 nodes"):
        gate("SELECT 1, 2, 3, 4, 5, 6")


def test_expanded_with_queries_are_limited(gate: Gate) -> None:
    steps = [f"a{n} AS (SELECT * FROM a{n - 1} x, a{n - 1} y)" for n in range(1, 40)]
    with pytest.raises(UsageError, match="more than 20,000 nodes"):
        gate(f"WITH a0 AS (SELECT 1), {', '.join(steps)} SELECT * FROM a39")


# -- relations -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("SELECT 1", []),
        ("SELECT `topic` FROM `orders.>`", ["`orders.>"]),
        ("SELECT 1 FROM `a``b>`", ["`a`b>"]),
        ("SELECT 1 FROM `orders.new` AS a JOIN b ON a.`x` = b.y", ["`orders.new", "b"]),
        ("SELECT '`no.>`', \"`no.>`\" /* `no.>` */ -- `no.>`\nFROM messages", ["messages"]),
        ("SELECT '\N{GRINNING FACE}' FROM `x`", ["`x"]),
        ("WITH a AS (SELECT 1) SELECT * FROM a, A, b", ["b"]),
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["a"]),
        ("WITH a AS (SELECT * FROM b), b AS (SELECT 1) SELECT * FROM a", ["b"]),
        ("SELECT * FROM secret, (WITH secret AS (SELECT 1) SELECT * FROM secret)", ["secret"]),
        ("SELECT (WITH a AS (SELECT 1) SELECT * FROM a WHERE EXISTS (SELECT 1 FROM a)) FROM a", ["a"]),
        ("DESCRIBE `a.>`", ["`a.>"]),
    ],
)
def test_relations_are_found(gate: Gate, query: str, names: list[str]) -> None:
    """A back-tick in `names` marks a quoted name."""
    assert [f"{'`' * each.quoted}{each.name}" for each in gate(query).relations] == names


# -- the installed version of Spark ----------------------------------------------------------------------


def registered(spark: SparkSession, registry: str) -> set[str]:
    found = getattr(spark._jsparkSession.sessionState(), registry)().listFunction()
    return {str(found.apply(number).funcName()) for number in range(found.size())}


def test_every_function_is_listed(spark: SparkSession) -> None:
    """New functions of a later version are rejected; this test fails until they are listed."""
    found = registered(spark, "functionRegistry")
    assert found == allowed.FUNCTIONS | allowed.REFUSED.keys()
    assert not allowed.FUNCTIONS & allowed.REFUSED.keys()


def test_every_table_function_is_listed(spark: SparkSession) -> None:
    found = registered(spark, "tableFunctionRegistry")
    assert found == allowed.TABLE_FUNCTIONS | allowed.REFUSED_TABLE_FUNCTIONS.keys()
    assert not allowed.TABLE_FUNCTIONS & allowed.REFUSED_TABLE_FUNCTIONS.keys()


def test_each_refused_function_is_rejected(spark: SparkSession, gate: Gate) -> None:
    for name in allowed.REFUSED:
        with pytest.raises(UsageError, match=f"{name} is not allowed"):
            gate(f"SELECT `{name}`(1)")
    for name in allowed.REFUSED_TABLE_FUNCTIONS:
        with pytest.raises(UsageError, match=f"{name} is not allowed"):
            gate(f"SELECT * FROM {name}()")


def test_every_listed_class_exists(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm
    listed = allowed.OPERATORS | allowed.EXPRESSIONS | allowed.HOLDERS | allowed.VALUES | allowed.COMMANDS.keys()
    for name in listed:
        java.org.apache.spark.util.Utils.classForName(name, False, False)


def test_no_plan_node_is_listed_as_a_value(spark: SparkSession) -> None:
    """The check does not look inside values, and checks only the elements of holders."""
    java: Any = spark.sparkContext._jvm
    load = java.org.apache.spark.util.Utils.classForName
    node = load("org.apache.spark.sql.catalyst.trees.TreeNode", False, False)
    wrong = [name for name in allowed.VALUES | allowed.HOLDERS if node.isAssignableFrom(load(name, False, False))]
    assert not wrong
    for name in allowed.OPERATORS | allowed.EXPRESSIONS:
        assert node.isAssignableFrom(load(name, False, False)), name


def test_an_unvisited_leaf_is_rejected(gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark lists the leaves of a plan, also below a node that is listed as a value by mistake."""
    for name in ("expressions.PipeOperator", "plans.logical.SubqueryAlias"):
        monkeypatch.setattr(allowed, "VALUES", allowed.VALUES | {allowed.CATALYST + name})
    for query in ("FROM messages |> WHERE true", "EXPLAIN SELECT * FROM (SELECT * FROM messages) AS a"):
        with pytest.raises(UsageError, match="UnresolvedRelation is in a part of the plan that was not checked"):
            gate(query)


PIPES = """
WHERE true
LIMIT 1
OFFSET 1
ORDER BY 1
SELECT 1
EXTEND 1 AS x
SET topic = 1
DROP topic
AS x
AGGREGATE count(*) GROUP BY topic
UNION ALL SELECT 1
JOIN b ON true
PIVOT (sum(offset) FOR topic IN (1))
UNPIVOT (v FOR k IN (offset, sequence))
TABLESAMPLE (10 PERCENT)
""".strip().splitlines()


@pytest.mark.parametrize("pipe", PIPES)
def test_the_input_of_a_pipe_is_checked(gate: Gate, pipe: str) -> None:
    for query in (f"FROM messages |> {pipe}", f"FROM messages |> {pipe} |> WHERE true |> LIMIT 1"):
        assert "messages" in [each.name for each in gate(query).relations]
    with pytest.raises(UsageError, match="ScriptTransformation"):
        gate(f"FROM (SELECT TRANSFORM(1) USING 'id') |> {pipe}")


def test_functions_without_parentheses_are_listed(spark: SparkSession) -> None:
    """Spark's list, without the harmless ones."""
    java: Any = spark.sparkContext._jvm
    rule = java.org.apache.spark.util.Utils.classForName(
        "org.apache.spark.sql.catalyst.analysis.LiteralFunctionResolution$", True, False
    )
    field = rule.getDeclaredField("literalFunctions")
    field.setAccessible(True)
    found = field.get(rule.getField("MODULE$").get(None))
    words = {str(found.apply(number)._1()) for number in range(found.size())}
    harmless = {"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp", "grouping__id"}
    assert words - harmless <= allowed.UNQUALIFIED


def test_parse_uses_its_own_session(spark: SparkSession) -> None:
    """The settings are those of the given session, whichever was active in this thread before."""
    other = spark.newSession()
    other.sql("SELECT 1")
    assert "${env:HOME}" in parse(spark.newSession(), "SELECT '${env:HOME}'").toString()
