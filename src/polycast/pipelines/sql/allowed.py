"""Allow lists for queries: classes of Spark's parsed plan, functions, and sizes.

Anything not listed is rejected. A test compares these lists with the installed version of Spark.
"""

from __future__ import annotations

CATALYST = "org.apache.spark.sql.catalyst."


def _class_names(package: str, names: str) -> frozenset[str]:
    return frozenset(f"{package}.{name}" for name in names.split())


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# -- classes of the plan ---------------------------------------------------------------------------------

OPERATORS = (
    _class_names(CATALYST + "expressions", "PipeOperator")
    | _class_names(
        CATALYST + "plans.logical",
        "Aggregate Distinct Except Filter Generate GlobalLimit Intersect Join LateralJoin LimitAll LocalLimit"
        " Offset OneRowRelation Pivot Project RepartitionByExpression Sample Sort SubqueryAlias"
        " Union Unpivot UnresolvedWith WithWindowDefinition",
    )
    | _class_names(
        CATALYST + "analysis",
        "UnresolvedEventTimeWatermark UnresolvedHaving UnresolvedInlineTable UnresolvedQualify UnresolvedRelation"
        " UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedTableValuedFunction",
    )
)
"""Operators of a query. They read relations and nothing else, and write nothing."""

COMMANDS = {
    "org.apache.spark.sql.execution.command.ExplainCommand": "EXPLAIN",
    "org.apache.spark.sql.execution.command.DescribeQueryCommand": "DESCRIBE QUERY",
    CATALYST + "plans.logical.DescribeRelation": "DESCRIBE",
}
"""Commands about a query or a view, which gets the same checks."""

EXPRESSIONS = (
    _class_names(
        CATALYST + "expressions",
        "Add Alias And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CaseWhen Cast Coalesce Collate Concat"
        " CreateNamedStruct Cube CurrentRow$ Divide EqualNullSafe EqualTo Exists GreaterThan GreaterThanOrEqual"
        " GroupingSets ILike In InSubquery IntegralDivide IsNotNull IsNull IsUnknown$$anon$1"
        " IsNotUnknown$$anon$2 LambdaFunction LateralSubquery LessThan LessThanOrEqual Like LikeAll LikeAny"
        " ListQuery Literal Lower Multiply NamePlaceholder$ NamedArgumentExpression Not NotLikeAll NotLikeAny Or"
        " Overlay PipeExpression RLike Remainder Rollup ScalarSubquery SemiStructuredExtract ShiftLeft ShiftRight"
        " ShiftRightUnsigned SortOrder SpecifiedWindowFrame StringLocate StringTrim StringTrimLeft"
        " StringTrimRight Substring Subtract TimestampAdd TimestampDiff UnaryMinus UnaryPositive"
        " UnboundedFollowing$ UnboundedPreceding$ Unnest UnresolvedCollation UnresolvedNamedLambdaVariable"
        " UnresolvedWindowExpression UnspecifiedFrame$ WindowExpression WindowSpecDefinition",
    )
    | _class_names(CATALYST + "expressions.aggregate", "AggregateExpression AnyValue First Last")
    | _class_names(
        CATALYST + "analysis",
        "MultiAlias UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue UnresolvedFunction"
        " UnresolvedGenerator UnresolvedOrdinal UnresolvedStar UnresolvedStarExceptOrReplace",
    )
)
"""Expressions as the parser creates them. Function calls are `UnresolvedFunction` and are checked by name."""

HOLDERS = (
    _class_names("scala", "None$ Some Tuple2 Tuple3")
    | _class_names(
        "scala.collection.immutable",
        "$colon$colon Nil$ Vector0$ Vector1 Vector2 Vector3 Map$EmptyMap$ Map$Map1 Map$Map2 Map$Map3 Map$Map4"
        " HashMap ArraySeq$ofRef",
    )
    | _class_names("scala.collection.mutable", "ArrayBuffer ListBuffer ArraySeq$ofRef")
    | _class_names(CATALYST + "plans", "NaturalJoin UsingJoin")
    | _class_names(CATALYST[:-1], "AliasIdentifier FunctionIdentifier")
    | _class_names(CATALYST + "plans.logical", "JoinHint")
    | _class_names(CATALYST + "expressions", "WindowSpecReference")
)
"""Containers, whose elements are checked in turn."""

VALUES = (
    _class_names(CATALYST + "plans", "Cross$ FullOuter$ Inner$ LeftAnti$ LeftOuter$ LeftSemi$ RightOuter$")
    | _class_names(CATALYST + "plans.logical", "SampleMethod$Bernoulli$ SampleMethod$System$")
    | _class_names(
        CATALYST + "expressions",
        "Ascending$ Descending$ NullsFirst$ NullsLast$ RangeFrame$ RowFrame$ ExprId NumericEvalContext",
    )
    | _class_names(CATALYST + "expressions.aggregate", "Complete$")
    | _class_names(CATALYST + "analysis", "UnresolvedTableOrViewSearchPathMode$QueryLike$")
    | _class_names(
        "org.apache.spark.sql.execution", "SimpleMode$ ExtendedMode$ FormattedMode$ CostMode$ CodegenMode$"
    )
    | _class_names(
        "org.apache.spark.sql.types",
        "ArrayType BinaryType$ BooleanType$ ByteType$ CalendarIntervalType$ DateType$ DayTimeIntervalType"
        " DecimalType DoubleType$ FloatType$ IntegerType$ LongType$ MapType NullType$ ShortType$ StringType"
        " StringType$ StructType TimeType TimestampNTZType$ TimestampType$ VariantType$ YearMonthIntervalType"
        " CharType VarcharType",
    )
    | _class_names("org.apache.spark.unsafe.types", "CalendarInterval UTF8String")
    | frozenset({"scala.Enumeration$Val"})
)
"""Values without content to check. None of them is a plan node, whatever its package."""

# -- functions -------------------------------------------------------------------------------------------

FUNCTIONS = _words(
    """
! % & * + - / < << <= <=> = == > >= >> >>> ^ | ~ and or not in between like ilike rlike regexp div mod when if

abs acos acosh asin asinh atan atan2 atanh bin bround cbrt ceil ceiling conv cos cosh cot csc degrees e exp expm1
factorial floor greatest hypot least ln log log10 log1p log2 nanvl negative pi pmod positive pow power radians rint
round sec sign signum sin sinh sqrt tan tanh try_add try_divide try_mod try_multiply try_subtract width_bucket
bit_count bit_get getbit shiftleft shiftright shiftrightunsigned rand randn random uniform
vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum

coalesce equal_null ifnull isnan isnotnull isnull nullif nullifzero nvl nvl2 zeroifnull typeof
bigint binary boolean cast date decimal double float int smallint string time timestamp tinyint

ascii base64 bit_length btrim char char_length character_length chr collate collation concat concat_ws contains
crc32 decode elt encode endswith find_in_set format_number format_string from_base32 hash hex hmac initcap instr
is_valid_utf8 jaro_winkler_similarity lcase left len length levenshtein locate lower lpad ltrim luhn_check
make_valid_utf8 mask md5 octet_length overlay parse_url position printf quote randstr regexp_count regexp_extract
regexp_extract_all regexp_instr regexp_like regexp_replace regexp_substr repeat replace reverse right rpad rtrim
sentences sha sha1 sha2 soundex space split split_part startswith str_to_map substr substring substring_index
to_base32 to_binary to_char to_number to_varchar translate trim try_parse_url try_to_binary try_to_number
try_url_decode try_validate_utf8 ucase unbase64 unhex upper url_decode url_encode uuid validate_utf8 xxhash64
aes_decrypt aes_encrypt try_aes_decrypt

add_months convert_timezone curdate current_date current_time current_timestamp current_timezone date_add date_diff
date_format date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
dayofweek dayofyear extract from_unixtime from_utc_timestamp hour last_day localtime localtimestamp make_date
make_dt_interval make_interval make_time make_timestamp make_timestamp_ltz make_timestamp_ntz
make_ym_interval minute
month monthname months_between next_day now quarter second session_window time_bucket time_diff time_from_micros
time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp_micros
timestamp_millis timestamp_nanos timestamp_seconds to_date to_time to_timestamp to_timestamp_ltz to_timestamp_ntz
to_unix_timestamp to_utc_timestamp trunc try_make_interval try_make_timestamp try_make_timestamp_ltz
try_make_timestamp_ntz try_to_date try_to_time try_to_timestamp unix_date unix_micros unix_millis unix_nanos
unix_seconds unix_timestamp weekday weekofyear window window_time year

array array_append array_compact array_contains array_distinct array_except array_insert array_intersect array_join
array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
arrays_overlap arrays_zip cardinality element_at exists filter flatten forall get named_struct shuffle size slice
sort_array struct transform try_element_at zip_with aggregate reduce
map map_concat map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values
map_zip_with transform_keys transform_values
explode explode_outer inline inline_outer posexplode posexplode_outer stack json_tuple

from_csv from_json get_json_object is_valid_variant is_variant_null json_array_length json_object_keys parse_json
schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg to_csv to_json
to_variant_object try_parse_json
try_variant_array_append try_variant_get try_variant_insert try_variant_set variant_array_append variant_delete
variant_get variant_insert variant_set variant_strip_nulls

any any_value approx_count_distinct approx_percentile approx_top_k array_agg avg bit_and bit_or bit_xor
bitmap_and_agg bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg bool_and
bool_or collect_list collect_set collect_union corr count count_if counter_diff covar_pop covar_samp cume_dist
dense_rank every first first_value grouping grouping_id histogram_numeric kurtosis lag last last_value lead listagg
max max_by mean median min min_by mode nth_value ntile percent_rank percentile percentile_approx percentile_cont
percentile_disc rank regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy
row_number skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop var_samp variance
monotonically_increasing_id spark_partition_id
"""
)

TABLE_FUNCTIONS = _words(
    "explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range stack variant_explode"
    " variant_explode_outer"
)

_SKETCH = "it parses a sketch from unvalidated bytes"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("java_method", "reflect", "try_reflect"), "it calls Java"),
    **dict.fromkeys(
        ("input_file_name", "input_file_block_start", "input_file_block_length"), "it reveals file paths"
    ),
    **dict.fromkeys(
        _words("""from_xml schema_of_xml to_xml xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long
        xpath_number xpath_short xpath_string"""),
        "XML can reference files and hosts",
    ),
    **dict.fromkeys(
        _words("from_avro to_avro schema_of_avro from_protobuf to_protobuf"), "it can read a schema file"
    ),
    **dict.fromkeys(
        _words("""current_catalog current_database current_path current_schema current_user session_user user
        version"""),
        "it reveals details of the Spark process",
    ),
    **dict.fromkeys(("raise_error", "assert_true"), "it fails on purpose"),
    "measure": "there are no metric views",
    "sequence": "it creates arrays of any length; range(N) creates rows",
    "count_min_sketch": "its arguments determine how much memory it allocates",
    **dict.fromkeys(
        _words("""approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate
        hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg
        kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
        kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
        kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
        kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
        kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
        kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
        kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float
        theta_difference theta_intersection theta_intersection_agg theta_sketch_agg theta_sketch_estimate
        theta_union theta_union_agg
        tuple_difference_double tuple_difference_integer tuple_difference_theta_double
        tuple_difference_theta_integer tuple_intersection_agg_double tuple_intersection_agg_integer
        tuple_intersection_double tuple_intersection_integer tuple_intersection_theta_double
        tuple_intersection_theta_integer tuple_sketch_agg_double tuple_sketch_agg_integer
        tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
        tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
        tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer
        tuple_union_theta_double tuple_union_theta_integer"""),
        _SKETCH,
    ),
    **dict.fromkeys(
        _words("st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid"),
        "it parses geometries from unvalidated bytes",
    ),
}
"""Rejected functions, with the reason."""

REFUSED_TABLE_FUNCTIONS: dict[str, str] = {
    "python_worker_logs": "it reveals details of the Spark process",
    "collations": "it reads a table of Spark, not the log",
    "sql_keywords": "it reads a table of Spark, not the log",
}

UNQUALIFIED = _words("current_catalog current_database current_path current_schema current_user session_user user")
"""Names that Spark resolves as a function call if there is no such column."""

HIDDEN = "_metadata"
"""A hidden column that Spark adds when it reads files; it reveals paths."""

# -- sizes -----------------------------------------------------------------------------------------------

SIZE_LIMIT = 1_000_000
SIZES = {
    "array_insert": 1, "array_repeat": 1, "format_number": 1, "histogram_numeric": 1, "lpad": 1, "randstr": 0,
    "repeat": 1, "rpad": 1, "space": 0, "stack": 0,
}  # fmt: skip
"""Index of the argument that determines the size of the result: an integer literal, at most SIZE_LIMIT."""
GROWING = ("array_repeat", "repeat")
"""Functions whose sizes multiply when nested; the product over the whole query is limited."""
SCHEMAS = {"from_csv": 1, "from_json": 1, "try_variant_get": 2, "variant_get": 2}
"""The index of the argument that is a type, as text. Spark accepts a type in JSON as well, which can name a Java
or Python class to load: the text must be a literal in DDL syntax, or a call of one of SCHEMA_FUNCTIONS."""
SCHEMA_FUNCTIONS = ("schema_of_csv", "schema_of_json")
FORMATS = ("format_string", "printf")
WIDTH_DIGITS = 4
ARGUMENTS_AT_MOST = {"approx_count_distinct": 1, "range": 3}
"""Further arguments set an error bound or a number of partitions, and so the memory that Spark allocates."""
WINDOWS_AT_MOST = 1000
"""Maximum windows per row: window(time, '1 hour', '1 minute') is 60."""
GROUPING_SETS_AT_MOST = 1024
NODES_AT_MOST = 2000
"""Nodes of the parsed plan."""
EXPANDED_NODES_AT_MOST = 20_000
"""Nodes of the plan with every reference to a WITH query expanded."""
