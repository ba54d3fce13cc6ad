"""Words that say nothing personal: what `--redact` leaves readable in plans, messages and properties.

Everything else in those texts could be a literal, a user or a host, so it is kept only where its place shows that it
is a column or a function.
"""

from __future__ import annotations

# Keywords, operators, functions and types, as plans and SQL texts have them.
PLAN_WORDS = frozenset(
    """and or not in like rlike is null true false asc desc nulls first last inner leftouter rightouter fullouter
    leftsemi leftanti cross existence buildleft buildright outer left right full semi anti join on using where
    select from group by order having limit offset union all distinct as case when then else end cast between
    exists with create table view insert into overwrite values set update delete merge over partition rows
    range unbounded preceding following current row interval rollup cube grouping sets filter sort project
    scan parquet orc csv json text avro delta iceberg jdbc exchange hashpartitioning rangepartitioning
    singlepartition roundrobinpartitioning hashedrelationbroadcastmode identitybroadcastmode
    ensure_requirements repartition_by_num repartition_by_col repartition rebalance_partitions_by_none
    rebalance_partitions_by_col plan_id id columnar gpu batched
    datafilters partitionfilters pushedfilters readschema location format struct array map string int
    integer bigint smallint tinyint double float decimal boolean date timestamp binary void keys functions
    output results count sum min max avg mean stddev variance first_value last_value collect_list collect_set
    approx_count_distinct partial_sum partial_count partial_avg partial_min partial_max merge_sum isnotnull
    isnull coalesce substring substr year month day concat upper lower trim length abs round floor ceil
    greatest least if hash rank dense_rank row_number lag lead ntile explode inline posexplode
    knownfloatingpointnormalized normalizenanandzero promote_precision checkoverflow makedecimal unscaledvalue
    wholestagecodegen adaptivesparkplan isfinalplan broadcastexchange shuffleexchange sortmergejoin
    broadcasthashjoin hashaggregate objecthashaggregate sortaggregate takeorderedandproject reusedexchange
    subquery scalar_subquery scalar dynamicpruning inmemoryfileindex paths dynamicpruningexpression wholetextfiles
    cached batchscan filescan localtablescan expand generate window coalesced local skewed aqeshuffleread
    arguments input condition inputpath execute command equalto equalnullsafe greaterthan greaterthanorequal
    lessthan lessthanorequal stringstartswith stringendswith stringcontains startswith endswith contains
    alwaystrue alwaysfalse insertintohadoopfsrelationcommand mapinpandas flatmapgroupsinpandas arrowevalpython
    batchevalpython deserializetoobject serializefromobject mapelements mappartitions externalrdd existingrdd
    inmemorytablescan inmemoryrelation storagelevel disk memory deserialized replicas orderby step splits
    numpartitions bloom_filter_agg might_contain xxhash64 runtimefilters pushedaggregates pushedgroupby
    selectedbucketscount bucketed readschema optionalbucketset ispushed metadata partitioncount more fields
    gpuprojectexec gpufilter gpuproject gpusort gpuhashaggregate gpucolumnarexchange gpubroadcasthashjoin
    gpushuffledhashjoin gpucoalescebatches gpurowtocolumnar gpucolumnartorow targetsize requiresinglebatch
    gpuhashpartitioning gpurangepartitioning gpusinglepartitioning gpuroundrobinpartitioning
    cometscan cometfilter cometproject comethashaggregate cometexchange cometcolumnarexchange cometsort
    cometbroadcasthashjoin cometsortmergejoin""".split()  # noqa: SIM905 - one word a line would fill ten pages
)

# Spark's functions: kept where an opening bracket follows.
FUNCTIONS = frozenset(
    """acos acosh add_months aes_decrypt aes_encrypt aggregate any_value approx_percentile array_agg array_append
    array_compact array_contains array_distinct array_except array_insert array_intersect array_join array_max
    array_min array_position array_prepend array_remove array_repeat array_size array_sort array_union
    arrays_overlap arrays_zip asc_nulls_first asc_nulls_last ascii asin asinh assert_true atan atan2 atanh
    base64 bin bit_and bit_count bit_get bit_length bit_or bit_xor bitmap_bit_position bitmap_bucket_number
    bitmap_construct_agg bitmap_count bitmap_or_agg bitwise_not bool_and bool_or broadcast bround btrim bucket
    call_function cardinality cbrt ceiling char char_length character_length col column concat_ws conv
    convert_timezone corr cos cosh cot count_distinct count_if count_min_sketch covar_pop covar_samp crc32
    create_map csc cume_dist curdate current_catalog current_database current_date current_schema
    current_timestamp current_timezone current_user date_add date_diff date_format date_from_unix_date date_part
    date_sub date_trunc dateadd datediff datepart dayofmonth dayofweek dayofyear days decode degrees
    desc_nulls_first desc_nulls_last e element_at elt encode encodeusingserializer equal_null every exp
    explode_outer expm1 expr extract factorial find_in_set flatten forall format_number format_string from_csv
    from_json from_unixtime from_utc_timestamp get get_active_spark_context get_json_object getbit grouping_id
    hex histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hour hours hypot ifnull
    ilike initcap inline_outer input_file_block_length input_file_block_start input_file_name instr invoke isnan
    java_method json_array_length json_object_keys json_tuple knownnotnull kurtosis last_day lcase levenshtein
    lit ln localtimestamp locate log log10 log1p log2 lpad ltrim make_date make_dt_interval make_interval
    make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval map_concat map_contains_key
    map_entries map_filter map_from_arrays map_from_entries map_keys map_values map_zip_with mask max_by md5
    median mightcontain min_by minute mode monotonically_increasing_id months months_between murmur3hash
    named_struct nanvl negate negative newinstance next_day now nth_value nullif nvl nvl2 octet_length overlay
    parse_url partial_collect_list partial_collect_set partial_first partial_last partial_pivotfirst
    partial_stddev_samp partial_variance_samp percent_rank percentile percentile_approx pi pivotfirst pmod
    posexplode_outer position positive pow power precise_timestamp_conversion printf product quarter radians
    raise_error rand randn reduce reflect regexp regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_like regexp_replace regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy repeat replace reverse rint rpad rtrim schema_of_csv schema_of_json sec second
    sentences sequence session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned shuffle sign signum
    sin sinh size skewness slice some sort_array soundex spark_partition_id specifiedwindowframe split
    split_part sqrt stack staticinvoke std stddev_pop stddev_samp str_to_map substring_index sum_distinct tan
    tanh timestamp_micros timestamp_millis timestamp_seconds to_binary to_char to_csv to_date to_json to_number
    to_str to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar
    transform transform_keys transform_values translate trunc try_add try_aes_decrypt try_avg try_divide
    try_element_at try_multiply try_remote_functions try_subtract try_sum try_to_binary try_to_number
    try_to_timestamp typeof ucase udtf unbase64 unhex unix_date unix_micros unix_millis unix_seconds
    unix_timestamp unwrap_udt url_decode url_encode user var_pop var_samp version weekday weekofyear
    width_bucket window_time windowspecdefinition xpath xpath_boolean xpath_double xpath_float xpath_int
    xpath_long xpath_number xpath_short xpath_string years zip_with""".split()  # noqa: SIM905
)

# What Spark, the JVM, Hadoop and the cluster managers say when something fails.
MESSAGE_WORDS = PLAN_WORDS | frozenset(
    """a about abort aborted aborting above access accessible action active actual after again allocate allocated
    allocation already also an another any application are arithmetic assertion at attempt attempts available backend
    bad be because been before being below beyond block blocks both broadcast broken bucket buffer but bytes cache call
    called can cancel cancelled cannot caught cause caused causes chain change changed channel check checksum child
    class cleaned client close closed cluster code column columns commit committed complete completed config
    configuration configured connect connection consider contact container containers converted copy core cores corrupt
    corrupted could create created current data database deadline decommission decommissioned default denied dependent
    did different disassociated disconnected division do does done driver dropped due during each either empty enabled
    encoded encountered end ended enough environment error errors evicted exceed exceeded exceeding exceeds exception
    execution executor executors executorlostfailure exist existing exists exit exited expected expecting expired fail
    failed failing failure failures false fatal fetch fetchfailed file files final find finished first for force forced
    found frame frames free from full function gave generate get getting given group had handle has have heap heartbeat
    heartbeats host idle ignore illegal in index input instance instead insufficient int integer internal interrupted
    invalid io is issue it its java job jobs join jvm keep key kill killed killing large larger last later leaving left
    length less limit limits line lines likely load local location log logs long longer loss lost malformed many
    master may maximum memory message metadata method might missing module more most must name near negative network
    new next no node nodes none not null number object of off offset ok old on one only open operation operator option
    or other out output over overflow overhead overloaded owner parent parse parsed parsing part partition partitions
    path peer pending permission physical plan please pool position possible preempted previous problem process
    processing provided python query queue quota range reached read reading reason reasons recent record recover
    refused registered rejected released remote remove removed replaced replicas request requested required requires
    reset resource resources response rest result results retries retry return returned row rows rpc run running runtime
    sa schema scheduler seconds see segment send sent serialized server service session set shuffle shut shutdown
    shutting sigkill signal sigterm since size slow small socket some source space spark spill sql stack stage stages
    start started starting state status still stop stopped stopping storage stream string submitted success
    such supported suppress syntax system table task tasks tasksetmanager temporary terminated than that the their
    them then there these they this thread threads through tid time timed timeout times to token too total traceback
    transport tried true try trying type types unable unavailable undefined unexpected unhealthy unknown unregistered
    unsupported until up update use used user using valid value values version view virtual vmem waiting was when where
    whether which while will with within without work worker workers write writing wrong yarn yet you your zero
    address aggregated allowed also anymore appear as associated bound broadcasted by commandline considered
    decompress decompression deserialization division disable enable fails flag idle increase itself likely
    multiple native nan pin reading recent resubmitted runner serialization splitandretry speculative
    sparkcontext down outofmemory split inputs hostmemorybuffer tolerate divisor necessary bypass raise ansi oom gpu
    localhost stacktrace superseded taskkilled toolkit underlying unreachable vectorized""".split()  # noqa: SIM905
)

# Values of properties that name a choice, not a person or a place.
PROPERTY_WORDS = frozenset(
    """true false yarn k8s local cluster client fair fifo zstd lz4 lzf snappy gzip brotli none uncompressed parquet orc
    auto all legacy corrected exception ansi strict static dynamic perfile multithreaded coalescing async default
    explicit utc java8api timestamp_micros timestamp_millis int96 hive in-memory sparse dense always never
    not_on_gpu debug info warn error localhost driver""".split()  # noqa: SIM905
)

# Accounts that every installation has.
SERVICE_ACCOUNTS = frozenset(
    """root spark hadoop hive yarn hdfs livy zeppelin ubuntu admin user nobody databricks driver localhost jovyan
    airflow""".split()  # noqa: SIM905
)

# Packages whose class names are public: of others, a class name may tell whose code it is.
PUBLIC_PACKAGES = (
    r"(?:javax?|jdk|sun|com\.sun|scala|kotlin|org\.apache|org\.sparkproject|org\.codehaus|org\.json4s|org\.postgresql|"
    r"org\.xerial|com\.nvidia|ai\.rapids|io\.netty|io\.delta|com\.databricks|com\.fasterxml|com\.google|com\.amazonaws|"
    r"com\.esotericsoftware|com\.microsoft|software\.amazon|py4j|pyspark|numpy|pandas|pyarrow|oracle\.jdbc)"
)
