"""Redact the texts of a log: secrets always, personal data on request."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable
from functools import lru_cache

REDACTED = "*********(redacted)"  # the same text as Spark's
# Spark's default of spark.redaction.regex (3.5), with additions of later versions and clouds.
SPARK_PATTERN = re.compile(r"(?i)secret|password|token|access[.]?key|credential|passphrase|sas[.]")
SECRET_NAME = re.compile(
    SPARK_PATTERN.pattern + r"|passwd|pwd|(?:account|api|private|shared|encryption|master)[._-]?key|access_key"
)
# All patterns are linear: repetitions are bounded, or begin at a rare text.
# Users may have an @, passwords a slash; ports differ from passwords by their digits.
URL_USER = re.compile(r"//(?P<user>[^\s/\"'<>\\]{1,400}|[^\s/:@\"'<>\\]{0,200}:(?!\d{1,5}[/?#])[^\s@\"'<>\\]{1,200})@")
ORACLE_USER = re.compile(r"(?i)(jdbc:oracle:\w{1,10}:)[^\s@\"'<>]{1,200}@")
# In abfss://container@account/… the part before the @ is a container, not a user.
CONTAINER_SCHEME = re.compile(r"(?i)\b(?:abfss?|wasbs?):$")
_KEY = (
    r"(?:secret|passw(?:or)?d|pwd|token|access[._-]?key|account[._-]?key|private[._-]?key|shared[._-]?key|credential"
    r"|passphrase|api[._-]?key|[?&]sig(?:nature)?\b|amz-signature)"
)
_TYPE = r"(?:string|int|bigint|smallint|tinyint|double|float|boolean|date|timestamp|binary|decimal|struct<|array<|map<)"
_QUOTED = r"\\?\"[^\"]*(?:\"|\Z)|\\?'[^']*(?:'|\Z)"
PAIR = re.compile(
    rf"(?i)(?P<key>{_KEY}[\w.-]{{0,64}}[\\\"'`]{{0,3}}\s{{0,4}}(?:=>|->|[=:])\s{{0,4}})(?!{_TYPE})"
    rf"(?P<value>{_QUOTED}|[^\s,;&)\]}}\"']+)"
)
# `--password x`, `PASSWORD 'x'`, `IDENTIFIED BY 'x'`
FLAG = re.compile(rf"(?i)(?P<key>--?[\w-]{{0,40}}{_KEY}\s{{1,4}})(?P<value>{_QUOTED}|[^\s\"'-][^\s\"']*)")
SPOKEN_PAIR = re.compile(rf"(?i)(?P<key>(?:{_KEY}|identified\s{{1,4}}by)\s{{1,4}})(?P<value>{_QUOTED})")
BARE_TOKEN = re.compile(
    r"(?P<key>(?i:\bbearer\s{1,4}|\bbasic\s{1,4}))(?P<value>[\w.+/=~-]{8,})"
    r"|\b(?:AKIA|ASIA)[0-9A-Z]{16}\b|\bgh[pousr]_\w{20,}|\beyJ[\w-]{10,}\.[\w-]{4,}[\w.-]*"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*"
)
HINT_PATTERN = re.compile(
    rf"(?i)//|jdbc:oracle|{_KEY}|identified\s{{1,4}}by|bearer|basic\s|AKIA|ASIA|gh[pousr]_|eyJ|PRIVATE KEY|sas[.]|"
    r"encryption[._-]?key|master[._-]?key"
)
# Most texts have none of these, and the regular expression takes 200 times as long.
HINTS = (
    *("//", "secret", "passw", "pwd", "token", "access", "account", "private", "shared", "credential", "passphrase"),
    *("api", "sig", "oracle", "identified", "bearer", "basic", "akia", "asia", "gh", "eyj", "sas.", "encryption"),
    "master",
)
LINE_CHARS = 80
# A hint to a secret in the shown part of a line is in it, or shortly after it in the same value.
SEARCHED_CHARS = 1 << 16
EVENT_LINE = re.compile(r'\ufeff?\s*\{\s*"Event"\s*:\s*"[\w.]*')

# Keywords, operators, functions and types of plans and SQL texts.
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
    cometbroadcasthashjoin cometsortmergejoin""".split()  # noqa: SIM905 - a list would take a line per word
)
# Spark's functions; kept before an opening bracket.
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
# Words of error messages of Spark, the JVM, Hadoop and cluster managers.
MESSAGE_WORDS = PLAN_WORDS | frozenset(
    """a about abort aborted aborting above access accessible action active actual after again allocate allocated
    allocation already also an another any application are arithmetic assertion at attempt attempts available backend
    bad be because been before being below beyond block blocks both broadcast broken bucket buffer but bytes cache call
    called can cancel cancelled cannot caught cause caused causes chain change changed channel check checksum child
    class cleaned client close closed cluster code column columns commit committed complete completed config
    configuration configured connect connection consider contact container containers converted copy core cores corrupt
    corrupted could create created current data database deadline decommission decommissioned default denied dependent
    did different disassociated disconnected division do does done driver dropped due during each either empty enabled
    encoded encountered end ended enough environment error errors event events evicted exceed exceeded exceeding
    exceeds exception execution executor executors executorlostfailure exist existing exists exit exited expected
    expecting expired fail failed failing failure failures false fatal fetch fetchfailed file files final find
    finished first for force forced
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
# Property values that are choices, not names or places.
PROPERTY_WORDS = frozenset(
    """true false yarn k8s local cluster client fair fifo zstd lz4 lzf snappy gzip brotli none uncompressed parquet orc
    auto all legacy corrected exception ansi strict static dynamic perfile multithreaded coalescing async default
    explicit utc java8api timestamp_micros timestamp_millis int96 hive in-memory sparse dense always never
    not_on_gpu debug info warn error localhost driver""".split()  # noqa: SIM905
)
# Common service accounts.
SERVICE_ACCOUNTS = frozenset(
    """root spark hadoop hive yarn hdfs livy zeppelin ubuntu admin user nobody databricks driver localhost jovyan
    airflow""".split()  # noqa: SIM905
)
# Packages with public class names; other class names may be confidential.
PUBLIC_PACKAGES = (
    r"(?:javax?|jdk|sun|com\.sun|scala|kotlin|org\.apache|org\.sparkproject|org\.codehaus|org\.json4s|org\.postgresql|"
    r"org\.xerial|com\.nvidia|ai\.rapids|io\.netty|io\.delta|com\.databricks|com\.fasterxml|com\.google|com\.amazonaws|"
    r"com\.esotericsoftware|com\.microsoft|software\.amazon|py4j|pyspark|numpy|pandas|pyarrow|oracle\.jdbc)"
)
# Texts of one plan repeat; those of a whole log, up to 4,000 characters each, would fill the memory.
CACHED_TEXTS = 2048
_STRING = r"'(?:[^'\\]|\\.|'')*(?:'|\\?\Z)|\"(?:[^\"\\]|\\.)*(?:\"|\\?\Z)"
STRING = re.compile(_STRING, re.S)
HASH = re.compile(r"h:[0-9a-f]{10}")
_KEPT_PATTERN = rf"{HASH.pattern}|{re.escape(REDACTED)}"
WITH_SLASH = re.compile(r"(?<![^\s,;=\"'`\[\](){}<>])[^\s,;=\"'`\[\](){}<>]*[/\\][^\s,;\"'`\[\](){}<>]+")
PATH = re.compile(r"(?<![^\s=,(\[`])(?:[A-Za-z][A-Za-z0-9+.-]{0,20}:)?[/~][^\s,;\"'`\[\](){}]+")
PUBLIC_CLASS = re.compile(rf"{PUBLIC_PACKAGES}(?:[.$][\w$<>]+)+")
CODE_PLACE = re.compile(r"[\w$<>.-]{1,80}\.(?:java|scala|py|kt|R|sql):\d{1,6}")
ADDRESS = re.compile(
    r"(?<![\w.-])(?:(?:\d{1,3}\.){3}\d{1,3}|[A-Za-z0-9][\w-]{0,62}(?:\.[A-Za-z0-9][\w-]{0,62}){2,}"
    r"|[\w-]{1,63}(?:\.[\w-]{1,63})+:\d{2,5}|ip-\d+-\d+-\d+-\d+|[\w.+-]{1,64}@[\w.-]{1,255})(?![\w-])"
    r"|(?<![\w:])(?:[0-9a-fA-F]{0,4}:){2,7}[0-9a-fA-F]{1,4}(?![\w:])"
)
SQL = re.compile(r"(?i)\b(?:select|where|values|insert|update|delete|merge|having|between|like|create|from)\b")
SQL_TOKEN = re.compile(
    rf"(?P<kept>{_KEPT_PATTERN}|/\*\+.*?\*/|numPartitions=\d+)|(?P<hidden>--[^\n]*|/\*.*?(?:\*/|\Z)|{_STRING})"
    r"|`(?P<quoted>[^`]*)(?:`|\Z)|(?P<word>[^\W\d]\w*)|(?P<number>\d[\w.]*(?:(?<=[eE])[+-]\d+)?)",
    re.S,
)
CALL_SITE = re.compile(r"\$?\w{1,60} at [\w$<>.-]{1,80}:\d{1,6}")
NUMBER = re.compile(r"-?\d+(?:\.\d+){0,2}[a-zA-Z%]{0,2}")
PLAN_TOKEN = re.compile(
    rf"(?P<kept>{_KEPT_PATTERN}|\*\(\d+\)|(?<=WholeStageCodegen )\(\d+\)|#\d+L?"
    r"|(?:plan_id=|id=#)\d+|(?:splits|numPartitions)=\d+|\d+ paths"
    r"|(?i:decimal|char|varchar)\(\d+(?:,\s?\d+)?\)|(?:[a-z]{1,20}_)?count\(1\)|\.\.\. \d+ more fields)"
    rf"|(?P<hidden>{_STRING}|{WITH_SLASH.pattern})"
    r"|(?P<column>[^\W\d][\w.]*)#(?P<id>\d+)L?(?:\.[^\W\d]\w*)*|(?P<word>[^\W\d][\w.]*)|(?P<number>\d[\w.:+-]*)"
    r"|(?P<other>[^\x00-\x7f]+)",
    re.S,
)
EXCHANGE_COUNT = re.compile(r"\), (?:[A-Z_]{6,}|true|false|\[(?:plan_id|id)=)")
LITERAL_ALIAS = re.compile(r"(?:^|[\[(, ])([^#\n]{1,120}?) AS \1#(\d+)")
COLUMN = re.compile(r"(?<!\w)([^\W\d]\w*)#(\d+)")
SCHEMA_NAME = re.compile(r"(?:struct<|,)([^\W\d]\w*):(?=[a-z])")
MESSAGE_TOKEN = re.compile(
    rf"(?P<kept>{_KEPT_PATTERN}|\[[A-Z][A-Z0-9_.]{{3,80}}\]|{PUBLIC_CLASS.pattern}|{CODE_PLACE.pattern}"
    r"|\b(?i:task|stage|tid|executor|attempt|job|code|line|position|partition|status|signal|exit)\s?[=:#]?\s?"
    r"\d{1,9}(?:\.\d{1,9})?\b"
    r"|\b\d+(?:\.\d+)?\s?(?:[KMGT]i?B|B|bytes|ms|s|seconds|%|times)(?!\w))"
    rf"|(?P<hidden>{_STRING}|{WITH_SLASH.pattern})"
    r"|(?P<word>[^\W\d][\w$]*)|(?P<number>\d[\w.:+-]*)|(?P<other>[^\x00-\x7f]+)",
    re.S,
)
READABLE_WORDS = MESSAGE_WORDS | FUNCTIONS
PROPERTY = re.compile(r"spark\.[a-z][A-Za-z.]{3,80}")
FAILURE_NAME = re.compile(
    r"[A-Z][A-Za-z]{2,60}(?:Exception|Error|Failure|Failed|Killed|Lost|Denied|Resubmitted|Success|Reason)"
)
SEVERAL_HASHES = re.compile(rf"{HASH.pattern}(?:[ ,]{{1,2}}{HASH.pattern})+")


# Texts repeat thousands of times in a log.
@lru_cache(maxsize=2048)
def remove_secrets(text: str) -> str:
    """Remove user info in URLs, values such as `password=…` and well-known tokens from a text.

    >>> remove_secrets("jdbc:postgresql://ann:pw@db/x?user=ann&password=pw&ssl=true")
    'jdbc:postgresql://*********(redacted)@db/x?user=ann&password=*********(redacted)&ssl=true'
    >>> remove_secrets("abfss://container@account.dfs.core.windows.net/x")
    'abfss://container@account.dfs.core.windows.net/x'
    """
    if not has_secret_hint(text):
        return text
    text = ORACLE_USER.sub(lambda match: f"{match[1]}{REDACTED}@", URL_USER.sub(_mask_url_user, text))
    for pattern in (PAIR, FLAG, SPOKEN_PAIR, BARE_TOKEN):
        text = pattern.sub(_mask_value, text)
    return text


def has_secret_hint(text: str) -> bool:
    """Does the text have a hint to a secret?"""
    lowered = text.lower()
    return any(hint in lowered for hint in HINTS) and HINT_PATTERN.search(text) is not None


def _mask_url_user(url: re.Match[str]) -> str:
    before = url.string[max(0, url.start() - 12) : url.start()]
    if CONTAINER_SCHEME.search(before) and not set(":@") & set(url["user"]):
        return url[0]
    return f"//{REDACTED}@"


def _mask_value(pair: re.Match[str]) -> str:
    return (pair["key"] or "") + REDACTED


def remove_property_secrets(name: str, value: str) -> str:
    """Value of a property, redacted when its name or value looks like a secret (Spark tests both)."""
    if SECRET_NAME.search(name) or SPARK_PATTERN.search(value):
        return REDACTED
    return remove_secrets(value)


def format_bad_line(line: bytes) -> str:
    """The first 80 characters of a bad line, without secrets.

    A line with a hint to a secret is shown up to the event's name only, since broken JSON cannot be parsed. Fragments
    of an event are not shown, since the name of a secret may be in the lost part.
    """
    text = line[:SEARCHED_CHARS].decode("utf-8", "replace")
    event = EVENT_LINE.match(text[:400])
    if has_secret_hint(text) or (event is None and '"' in text):
        return f"{event[0][:LINE_CHARS] if event else ''}… ({REDACTED})"
    return "".join(
        char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:LINE_CHARS].rstrip("\r\n")
    )


def cut_text(text: str, chars: int) -> str:
    """The beginning of a long text, with reserve for redaction, cut between words.

    A cut inside user info would separate it from its @.
    """
    limit = 4 * chars
    if len(text) <= limit:
        return text
    last = max(text.rfind(blank, limit - 1000, limit) for blank in " \n\t")
    return text[: last if last >= 0 else limit - 1000]


class Redactor:
    """Redacts the texts of a log by their role; `strict` also hashes users, hosts, paths and SQL literals."""

    def __init__(self, *, strict: bool = False, key: bytes | None = None) -> None:
        self.strict = strict
        self._key = key or secrets.token_bytes(16)
        self._names: set[str] = set()
        self._known: re.Pattern[str] | None = None
        self.redact_text = lru_cache(maxsize=CACHED_TEXTS)(self._redact_text)
        self.redact_label = lru_cache(maxsize=CACHED_TEXTS)(self._redact_label)
        self.redact_message = lru_cache(maxsize=CACHED_TEXTS)(self._redact_message)
        self.redact_plan = lru_cache(maxsize=CACHED_TEXTS)(self._redact_plan)

    def hash_value(self, value: str) -> str:
        """Keyed hash of a value, the same within one run."""
        return "h:" + hashlib.blake2b(value.encode("utf-8", "replace"), key=self._key, digest_size=5).hexdigest()

    def learn_names(self, *names: str | None) -> None:
        """Hash these users and hosts wherever they occur from now on."""
        if not self.strict:
            return
        new_names = {part for name in names if name for part in (name, _first_host_label(name))}
        new_names = {
            name for name in new_names if len(name) > 2 and name.lower() not in SERVICE_ACCOUNTS | MESSAGE_WORDS
        }
        if new_names <= self._names:
            return
        self._names |= new_names
        # Longest first, or a short name would match inside a longer one.
        listed = "|".join(re.escape(name) for name in sorted(self._names, key=len, reverse=True))
        self._known = re.compile(rf"(?i)(?<![A-Za-z0-9])(?:{listed})(?![A-Za-z0-9])")
        for cached in (self.redact_text, self.redact_label, self.redact_message, self.redact_plan):
            cached.cache_clear()

    def _hash_known_names(self, text: str) -> str:
        return self._known.sub(lambda match: self.hash_value(match[0]), text) if self._known else text

    def redact_name(self, value: str | None) -> str | None:
        """A user's or host's name."""
        if not value or value in ("localhost", "driver"):
            return value
        return self.hash_value(value) if self.strict else remove_secrets(value)

    def redact_path(self, value: str) -> str:
        """A path or URL."""
        return self.hash_value(value) if self.strict else remove_secrets(value)

    def redact_job_group(self, value: str | None) -> str | None:
        """A job group; notebook servers build it from the user's name."""
        return self.redact_name(value)

    def redact_fault(self, value: str) -> str:
        """A fault of a file, as "name: reason"."""
        if not self.strict:
            return remove_secrets(value)
        file, colon, reason = value.partition(": ")
        return f"{self.hash_value(file)}: {self.redact_message(reason)}" if colon else self.redact_message(value) or ""

    def redact_property_name(self, name: str) -> str:
        """A property's name, which may have the account of a cloud."""
        name = remove_secrets(cut_text(name, 1000))
        if not self.strict:
            return name
        account = r"(?<![\w-])([\w-]{1,63})(?=\.(?:dfs|blob)\.core\.windows\.net)"
        return self._hash_known_names(re.sub(account, lambda match: self.hash_value(match[0]), name))

    def redact_property(self, name: str, value: str) -> str:
        """A property's value; in strict mode only choices, numbers and public classes are kept."""
        value = remove_property_secrets(name, value)
        if not self.strict or value == REDACTED or not value:
            return value
        plain = (
            NUMBER.fullmatch(value)
            or value.lower() in PROPERTY_WORDS
            or all(PUBLIC_CLASS.fullmatch(part.strip()) for part in value.split(","))
        )
        if plain or re.fullmatch(r"local\[[\d*,]+\]|(?:application|app|local)[-_][\d_-]+", value):
            return value
        if name in ("Java Version", "Scala Version") and re.fullmatch(r"[\w .()+-]{1,80}", value):
            return value
        return self.hash_value(value)

    def _redact_text(self, value: str | None, chars: int = 4000) -> str | None:
        """A description or name: free text that may have SQL, paths and addresses."""
        if not value:
            return value
        value = remove_secrets(cut_text(value, chars))
        if self.strict and not CALL_SITE.fullmatch(value):
            value = self._redact_sql(value) if SQL.search(value) else self._redact_prose(value)
        return (self._hash_known_names(value) if self.strict else value)[:chars]

    def _redact_prose(self, value: str) -> str:
        for pattern in (STRING, WITH_SLASH):
            value = pattern.sub(lambda match: self.hash_value(match[0]), value)
        return ADDRESS.sub(self._redact_address, value)

    def _redact_address(self, match: re.Match[str]) -> str:
        public_name = PUBLIC_CLASS.fullmatch(match[0]) or CODE_PLACE.fullmatch(match[0])
        return match[0] if public_name else self.hash_value(match[0])

    def _redact_sql(self, value: str) -> str:
        value = PATH.sub(lambda match: self.hash_value(match[0]), value)
        return SQL_TOKEN.sub(self._redact_sql_token, value)

    def _redact_sql_token(self, match: re.Match[str]) -> str:
        if match["hidden"] or match["number"] or "/" in (match["quoted"] or ""):
            return self.hash_value(match[0])
        return match[0]

    def _redact_label(self, value: str | None) -> str | None:
        """Name of a node, metric or stage: made by Spark, but it may have tables, queries and paths."""
        if not value:
            return value
        value = remove_secrets(cut_text(value, 4000))
        if self.strict:
            if SQL.search(value):
                value = self._redact_sql(value)
            for pattern in (STRING, WITH_SLASH):
                value = pattern.sub(lambda match: self.hash_value(match[0]), value)
            value = self._hash_known_names(value)
        return value[:4000]

    def _redact_message(self, value: str | None, chars: int = 2000) -> str | None:
        """An error message: data may be anywhere, so strict mode keeps only known words and code places."""
        if not value:
            return value
        value = remove_secrets(cut_text(value, chars))
        if self.strict:
            value = MESSAGE_TOKEN.sub(self._redact_message_token, self._hash_known_names(value))
            value = SEVERAL_HASHES.sub(lambda match: self.hash_value(match[0]), value)
        return value[:chars]

    def _redact_message_token(self, match: re.Match[str]) -> str:
        word = match["word"]
        is_readable = word and (word.lower() in READABLE_WORDS or FAILURE_NAME.fullmatch(word))
        if hidden := match["hidden"]:
            # Settings in advice, such as "spark.sql.ansi.enabled", "false".
            inner = hidden[1:-1]
            is_readable = PROPERTY.fullmatch(inner) or inner.lower() in PROPERTY_WORDS
        return match[0] if match["kept"] or is_readable else self.hash_value(match[0])

    def find_column_words(self, names: Iterable[str], texts: Iterable[str]) -> frozenset[str]:
        """Columns and tables of a query, by names of plan nodes and other texts; "#id" of columns named by a literal.

        Spark names the column of `SELECT 'Rome'` Rome; its definition "Rome AS Rome#7" shows that it is a literal.
        """
        columns: set[tuple[str, str]] = set()
        literals: set[str] = set()
        words: set[str] = set()
        for text in {cut_text(text, 4000) for text in texts}:
            literals |= {number for _, number in LITERAL_ALIAS.findall(text)}
            columns |= set(COLUMN.findall(text))
            words |= set(SCHEMA_NAME.findall(text))
        for name in set(names):
            words |= set(re.findall(r"[^\W\d][\w.]*", HASH.sub("", self.redact_label(name) or "")))
        return frozenset(
            words | {name for name, number in columns if number not in literals} | {f"#{i}" for i in literals}
        )

    def _redact_plan(self, value: str | None, columns: frozenset[str] = frozenset(), chars: int = 4000) -> str | None:
        """Text of an operator: literals have no quotes, so strict mode keeps only known words and columns."""
        if not value:
            return value
        value = remove_secrets(cut_text(value, chars))
        if self.strict:
            value = self._hash_known_names(PLAN_TOKEN.sub(lambda match: self._redact_plan_token(match, columns), value))
        return value[:chars]

    def _redact_plan_token(self, match: re.Match[str], columns: frozenset[str]) -> str:
        if match["kept"]:
            return match[0]
        if column := match["column"]:
            return match[0] if f"#{match['id']}" not in columns else self.hash_value(column) + "#" + match["id"]
        if word := match["word"]:
            is_readable = word.lower() in PLAN_WORDS or word in columns or _is_function_call(match)
            return word if is_readable else self.hash_value(word)
        return match[0] if match["number"] and _is_count(match) else self.hash_value(match[0])


def _first_host_label(host: str) -> str:
    return host if re.fullmatch(r"[\d.:]+", host) else host.split(".", 1)[0]


def _is_function_call(match: re.Match[str]) -> bool:
    """Is the word a function, with a column or nothing in its brackets?"""
    tail = match.string[match.end() : match.end() + 300]
    if tail.startswith("(") and match[0].lower() in FUNCTIONS:
        return True
    return tail.startswith("()") or (tail.startswith("(") and re.search(r"#\d", tail.split(")", 1)[0]) is not None)


def _is_count(match: re.Match[str]) -> bool:
    """Is it a number of partitions, or the constant at the end of a sort?"""
    text, start, end = match.string, match.start(), match.end()
    if re.match(r"\w*Coalesce \d+\Z", text):
        return True
    if re.match(r"\w*Exchange\b", text) and EXCHANGE_COUNT.match(text, end):
        return True
    return (
        end == len(text)
        and text.startswith(("Sort", "GpuSort", "CometSort"))
        and text[:start].endswith((" true, ", " false, "))
    )
