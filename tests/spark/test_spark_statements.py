"""Every kind of statement in the grammar of the installed Spark is accepted or rejected, with an example.

The gate rejects kinds that a later version adds, because it lists classes by name. This test then fails until the
new kind is listed here.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession

from polycast.errors import UsageError
from polycast.pipelines.sql.gate import check_query

PARSER = "org.apache.spark.sql.catalyst.parser.SqlBaseParser"

PASSED = {
    "StatementDefault": "SELECT 1",
    "Explain": "EXPLAIN SELECT 1",
    "DescribeQuery": "DESCRIBE QUERY SELECT 1",
    "DescribeRelation": "DESCRIBE messages",
}
REFUSED = {
    "AddTableColumns": "ALTER TABLE t ADD COLUMNS (a INT)",
    "AddTableConstraint": "ALTER TABLE t ADD CONSTRAINT c CHECK (a > 1)",
    "AddTablePartition": "ALTER TABLE t ADD PARTITION (a = 1)",
    "AlterClusterBy": "ALTER TABLE t CLUSTER BY (a)",
    "AlterTableAlterColumn": "ALTER TABLE t ALTER COLUMN a TYPE INT",
    "AlterTableCollation": "ALTER TABLE t DEFAULT COLLATION UTF8_LCASE",
    "AlterViewQuery": "ALTER VIEW v AS SELECT 1",
    "AlterViewSchemaBinding": "ALTER VIEW v WITH SCHEMA EVOLUTION",
    "Analyze": "ANALYZE TABLE t COMPUTE STATISTICS",
    "AnalyzeTables": "ANALYZE TABLES COMPUTE STATISTICS",
    "CacheTable": "CACHE TABLE t",
    "Call": "CALL p(1)",
    "ClearCache": "CLEAR CACHE",
    "CloseCursorStatement": "CLOSE c",
    "CommentColumn": "COMMENT ON COLUMN t.a IS 'x'",
    "CommentNamespace": "COMMENT ON DATABASE d IS 'x'",
    "CommentTable": "COMMENT ON TABLE t IS 'x'",
    "CreateFlowAutoCdc": "CREATE FLOW f AS AUTO CDC INTO t FROM STREAM s KEYS (a) SEQUENCE BY b",
    "CreateFunction": "CREATE FUNCTION f AS 'x'",
    "CreateIndex": "CREATE INDEX i ON t (a)",
    "CreateMetricView": "CREATE VIEW v WITH METRICS LANGUAGE YAML AS $$ x $$",
    "CreateNamespace": "CREATE DATABASE d",
    "CreatePipelineDataset": "CREATE STREAMING TABLE t",
    "CreatePipelineInsertIntoFlow": "CREATE FLOW f AS INSERT INTO t BY NAME SELECT 1",
    "CreateTable": "CREATE TABLE t (a INT) USING parquet LOCATION '/tmp/x'",
    "CreateTableLike": "CREATE TABLE t LIKE u",
    "CreateTempViewUsing": "CREATE TEMPORARY VIEW v USING text OPTIONS (path '/etc/passwd')",
    "CreateUserDefinedFunction": "CREATE TEMPORARY FUNCTION f() RETURNS INT RETURN 1",
    "CreateVariable": "DECLARE x INT",
    "CreateView": "CREATE TEMPORARY VIEW v AS SELECT 1",
    "DeclareCursorStatement": "DECLARE c CURSOR FOR SELECT 1",
    "DescribeFunction": "DESCRIBE FUNCTION abs",
    "DescribeNamespace": "DESCRIBE DATABASE d",
    "DescribeProcedure": "DESCRIBE PROCEDURE p",
    "DmlStatement": "INSERT INTO t SELECT 1",
    "DropFunction": "DROP FUNCTION f",
    "DropIndex": "DROP INDEX i ON t",
    "DropNamespace": "DROP DATABASE d",
    "DropTable": "DROP TABLE t",
    "DropTableColumns": "ALTER TABLE t DROP COLUMN a",
    "DropTableConstraint": "ALTER TABLE t DROP CONSTRAINT c",
    "DropTablePartitions": "ALTER TABLE t DROP PARTITION (a = 1)",
    "DropVariable": "DROP TEMPORARY VARIABLE x",
    "DropView": "DROP VIEW v",
    "FailNativeCommand": "GRANT ALL",
    "FetchCursorStatement": "FETCH c INTO x",
    "HiveChangeColumn": "ALTER TABLE t CHANGE COLUMN a a INT",
    "HiveReplaceColumns": "ALTER TABLE t REPLACE COLUMNS (a INT)",
    "LoadData": "LOAD DATA INPATH '/x' INTO TABLE t",
    "ManageResource": "ADD JAR '/tmp/x.jar'",
    "OpenCursorStatement": "OPEN c",
    "RecoverPartitions": "ALTER TABLE t RECOVER PARTITIONS",
    "RefreshFunction": "REFRESH FUNCTION f",
    "RefreshResource": "REFRESH '/tmp/x'",
    "RefreshTable": "REFRESH TABLE t",
    "RenameTable": "ALTER TABLE t RENAME TO u",
    "RenameTableColumn": "ALTER TABLE t RENAME COLUMN a TO b",
    "RenameTablePartition": "ALTER TABLE t PARTITION (a = 1) RENAME TO PARTITION (a = 2)",
    "RepairTable": "MSCK REPAIR TABLE t",
    "ReplaceTable": "REPLACE TABLE t (a INT) USING parquet",
    "SetCatalog": "SET CATALOG c",
    "SetNamespaceCollation": "ALTER DATABASE d DEFAULT COLLATION UTF8_LCASE",
    "SetNamespaceLocation": "ALTER DATABASE d SET LOCATION '/x'",
    "SetNamespaceProperties": "ALTER DATABASE d SET PROPERTIES ('a' = 'b')",
    "SetTableLocation": "ALTER TABLE t SET LOCATION '/x'",
    "SetTableProperties": "ALTER TABLE t SET TBLPROPERTIES ('a' = 'b')",
    "SetTableSerDe": "ALTER TABLE t SET SERDE 'x'",
    "ShowCatalogs": "SHOW CATALOGS",
    "ShowCollations": "SHOW COLLATIONS",
    "ShowColumns": "SHOW COLUMNS IN messages",
    "ShowCreateTable": "SHOW CREATE TABLE messages",
    "ShowCurrentNamespace": "SHOW CURRENT NAMESPACE",
    "ShowFunctions": "SHOW FUNCTIONS",
    "ShowNamespaces": "SHOW DATABASES",
    "ShowPartitions": "SHOW PARTITIONS t",
    "ShowProcedures": "SHOW PROCEDURES",
    "ShowTableExtended": "SHOW TABLE EXTENDED LIKE 'x'",
    "ShowTables": "SHOW TABLES",
    "ShowTblProperties": "SHOW TBLPROPERTIES messages",
    "ShowViews": "SHOW VIEWS",
    "TruncateTable": "TRUNCATE TABLE t",
    "UncacheTable": "UNCACHE TABLE t",
    "UnsetNamespaceProperties": "ALTER DATABASE d UNSET PROPERTIES ('a')",
    "UnsetTableProperties": "ALTER TABLE t UNSET TBLPROPERTIES ('a')",
    "Use": "USE d",
    "UseNamespace": "USE DATABASE d",
    "VisitExecuteImmediate": "EXECUTE IMMEDIATE 'SELECT 1'",
}
SET_AND_RESET = {
    "FailSetRole": "SET ROLE x",
    "ResetConfiguration": "RESET",
    "ResetQuotedConfiguration": "RESET `a.b`",
    "SetConfiguration": "SET a.b=c",
    "SetPath": "SET PATH = SYSTEM_PATH",
    "SetQuotedConfiguration": "SET `a.b`=c",
    "SetTimeZone": "SET TIME ZONE LOCAL",
    "SetVariable": "SET VARIABLE x = 1",
}
CHANGES = {
    "DeleteFromTable": "DELETE FROM t",
    "MergeIntoTable": "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE",
    "MultiInsertQuery": "FROM messages INSERT INTO a SELECT 1 INSERT INTO b SELECT 2",
    "SingleInsertQuery": "INSERT INTO t SELECT 1",
    "UpdateTable": "UPDATE t SET a = 1",
}
INSERTS = {
    "InsertIntoReplaceBooleanCond": "INSERT INTO t REPLACE WHERE a = 1 SELECT 1",
    "InsertIntoReplaceUsing": "INSERT INTO t REPLACE USING (a) SELECT 1",
    "InsertIntoTable": "INSERT INTO t SELECT 1",
    "InsertOverwriteDir": "INSERT OVERWRITE DIRECTORY '/tmp/x' USING json SELECT 1",
    "InsertOverwriteHiveDir": "INSERT OVERWRITE LOCAL DIRECTORY '/tmp/x' STORED AS textfile SELECT 1",
    "InsertOverwriteTable": "INSERT OVERWRITE t SELECT 1",
}
RELATIONS = {
    "AliasedQuery", "AliasedRelation", "ChangelogTableName", "InlineTableDefault2", "JsonTableRelation",
    "StreamRelation", "TableName", "TableValuedFunction", "UnnestTable",
}  # fmt: skip
QUERIES = {"FromStmt", "InlineTableDefault1", "QueryPrimaryDefault", "Subquery", "Table"}
SPECIFICATIONS = {"RegularQuerySpecification", "TransformQuerySpecification"}
REFUSED_EXAMPLES = {**REFUSED, **SET_AND_RESET, **CHANGES, **INSERTS}


@pytest.mark.parametrize(
    ("rule", "listed"),
    [
        ("StatementContext", {*PASSED, *REFUSED}),
        ("SetResetStatementContext", {*SET_AND_RESET}),
        ("DmlStatementNoWithContext", {*CHANGES}),
        ("InsertIntoContext", {*INSERTS}),
        ("RelationPrimaryContext", RELATIONS),
        ("QueryPrimaryContext", QUERIES),
        ("QuerySpecificationContext", SPECIFICATIONS),
    ],
)
def test_every_statement_of_the_grammar_is_listed(spark: SparkSession, rule: str, listed: set[str]) -> None:
    java: Any = spark.sparkContext._jvm
    parser = java.org.apache.spark.util.Utils.classForName(PARSER, True, False)
    found = {
        str(each.getSimpleName()).removesuffix("Context")
        for each in parser.getDeclaredClasses()
        if each.getSuperclass() and each.getSuperclass().getSimpleName() == rule
    }
    assert found == listed


def alternative(java: Any, text: str) -> str:
    """The name of this statement in the grammar."""
    package = java.org.apache.spark.sql.catalyst.parser
    stream = package.UpperCaseCharStream(java.org.antlr.v4.runtime.CharStreams.fromString(text))
    tokens = java.org.antlr.v4.runtime.CommonTokenStream(package.SqlBaseLexer(stream))
    parser = package.SqlBaseParser(tokens)
    parser.removeErrorListeners()
    found = parser.singleStatement().getChild(0)
    return str(found.getClass().getSimpleName()).removesuffix("Context")


@pytest.mark.parametrize(("kind", "query"), [*PASSED.items(), *REFUSED.items()])
def test_examples_parse_as_their_kind(spark: SparkSession, kind: str, query: str) -> None:
    assert alternative(spark.sparkContext._jvm, query) == kind


@pytest.mark.parametrize("query", REFUSED_EXAMPLES.values(), ids=REFUSED_EXAMPLES)
def test_statements_are_rejected(spark: SparkSession, query: str) -> None:
    with pytest.raises(UsageError):
        check_query(spark, query)


@pytest.mark.parametrize("query", PASSED.values(), ids=PASSED)
def test_statements_pass(spark: SparkSession, query: str) -> None:
    check_query(spark, query)
