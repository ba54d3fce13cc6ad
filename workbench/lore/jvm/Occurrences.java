package workbench.lore;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.execution.SparkPlan;

/**
 * How often a signature was met before in a query.
 *
 * <p>Of exchanges and subqueries that are equal Spark keeps one, and says which only after the rule: all of them are
 * counted as the same, and the one that runs is captured.
 */
final class Occurrences {
  private final Map<String, Integer> seen = new HashMap<>();
  private final Map<SparkPlan, Map<String, Integer>> before = new HashMap<>();

  Map<String, Integer> all() {
    return seen;
  }

  /** Counts to go on with below a plan that may be shared: as they were when an equal one was met first. */
  Map<String, Integer> below(SparkPlan plan, Map<String, Integer> counts) {
    Map<String, Integer> first = before.putIfAbsent(plan.canonicalized(), new HashMap<>(counts));
    return first == null ? counts : new HashMap<>(first);
  }

  static int next(Map<String, Integer> counts, String signature) {
    return counts.merge(signature, 1, Integer::sum) - 1;
  }
}
