package workbench.lore;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.CollectionAccumulator;
import scala.Option;

/** What is to be captured, and what came of it: one object in the driver, from arming to finishing. */
public final class Armed {
  /** A session is armed while this conf names a token. */
  public static final String KEY = "spark.workbench.lore.inline";

  private static final Map<String, Armed> LIVE = new ConcurrentHashMap<>();

  final List<Target> targets = new ArrayList<>();
  final String staging;
  final long batchRows;
  final long maxBytes;
  final CollectionAccumulator<String> records = new CollectionAccumulator<>();

  private final Map<String, Occurrences> seen = new ConcurrentHashMap<>();
  private final Map<String, Object> claims = new ConcurrentHashMap<>();
  private final Map<String, Integer> partitionCounts = new ConcurrentHashMap<>();
  private final Map<Integer, SparkPlan> operators = new ConcurrentHashMap<>();
  private final List<String> faults = Collections.synchronizedList(new ArrayList<>());
  private final AtomicInteger plannings = new AtomicInteger();

  private final Map<String, Expressions> expressions;

  private Armed(SparkContext context, JsonNode order, Map<String, Expressions> expressions) {
    this.expressions = new ConcurrentHashMap<>(expressions);
    staging = order.get("staging").asText();
    batchRows = order.get("batch_rows").asLong();
    maxBytes = order.get("max_bytes").asLong();
    for (JsonNode target : order.get("targets")) {
      targets.add(new Target(target));
    }
    // Unnamed: a named one is listed in the UI and the event log. Failed tasks report, too: their inputs are wanted.
    records.register(context, Option.empty(), true);
  }

  /** Keep an order under its token; the session's conf then has to name the token. */
  public static void arm(SparkContext context, String token, String order, Map<String, Expressions> expressions)
      throws IOException {
    LIVE.put(token, new Armed(context, new ObjectMapper().readTree(order), expressions));
  }

  /** What belongs to a token; null when there is none, or it is over. */
  public static Armed of(String token) {
    return token.isEmpty() ? null : LIVE.get(token);
  }

  /** Forget a token with all it holds. */
  public static void disarm(String token) {
    LIVE.remove(token);
  }

  /** One line of JSON for each tap of each task that ended, in the order in which the driver was told. */
  public List<String> records() {
    List<String> values = records.value();
    synchronized (values) {
      return new ArrayList<>(values);
    }
  }

  /** Faults of the hooks themselves, in words. */
  public List<String> faults() {
    return new ArrayList<>(faults);
  }

  /** The operator of a target as it was planned in the captured run; null when it was not met or did not run. */
  public SparkPlan operator(int loreId) {
    return operators.get(loreId);
  }

  /** Partitions of what a tap saw; -1 when it did not run. */
  public int partitionCount(String tap) {
    return partitionCounts.getOrDefault(tap, -1);
  }

  /** What is computed of a row at a place of a target; null where the row is taken as it is. */
  Expressions expressions(int loreId, String place) {
    return expressions.get("loreId-" + loreId + "/" + place);
  }

  void fault(String text) {
    if (faults.size() < 100) {
      faults.add(text);
    }
  }

  /** Occurrences are counted anew in each query. */
  Occurrences occurrences(SparkContext context) {
    String execution = context.getLocalProperty("spark.sql.execution.id");
    String planning = execution != null ? execution : "planned-" + plannings.incrementAndGet();
    return seen.computeIfAbsent(planning, key -> new Occurrences());
  }

  /** The first place that runs has what it claims; a plan that is only shown claims nothing. */
  boolean claim(String what, Object place) {
    return claims.computeIfAbsent(what, key -> place) == place;
  }

  void ran(Tap tap, int partitions, SparkPlan operator) {
    partitionCounts.put(tap.name, partitions);
    if (operator != null) {
      operators.put(tap.loreId, operator);
    }
  }
}
