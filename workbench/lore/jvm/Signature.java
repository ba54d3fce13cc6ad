package workbench.lore;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.IdentityHashMap;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.InputAdapter;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.WholeStageCodegenExec;
import org.apache.spark.sql.execution.adaptive.AQEShuffleReadExec;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;

/**
 * A name for what an operator computes: equal in the final plan of a run and in the stages that a rule is shown.
 *
 * <p>Ids cannot be counted inside a rule, which with AQE sees one stage at a time. Hashed are the class and the text of
 * the node, with attributes named by their place in a child's output, and the signatures of the children.
 */
public final class Signature {
  private static final int MAX_FIELDS = 10_000;
  private static final Pattern ATTRIBUTE = Pattern.compile("#(\\d+)(L?)");
  /** Differs from planning to planning although the work is the same; a subquery that is shared is one as well. */
  private static final Pattern PASSING =
      Pattern.compile(
          "\\bReusedSubquery |(?<=\\b(?:subquery|dynamicpruning))#\\d+|\\[?(?:plan_)?id=#?\\d+\\]?|RDD\\[\\d+\\]|@[0-9a-f]{4,16}\\b|\\$\\$?Lambda[$/\\w]*|"
              + "(?<=lambda )\\w+|(?<=\\brandn?\\()-?\\d+|(?<=\\b(?:uuid|shuffle)\\()Some\\(-?\\d+\\)");

  private final Map<SparkPlan, String> known = new IdentityHashMap<>();

  /** The signature of a plan, 32 hex digits. */
  public String of(SparkPlan wrapped) {
    SparkPlan plan = operator(wrapped);
    String signature = known.get(plan);
    if (signature == null) {
      signature = digest(text(plan));
      known.put(plan, signature);
    }
    return signature;
  }

  /** The operator behind whatever Spark, AQE or a tap put around it. */
  public static SparkPlan operator(SparkPlan plan) {
    while (true) {
      SparkPlan inner = inner(plan);
      if (inner == null) {
        return plan;
      }
      plan = inner;
    }
  }

  /** Is it no operator by itself? */
  static boolean isWrapper(SparkPlan plan) {
    return inner(plan) != null;
  }

  private static SparkPlan inner(SparkPlan plan) {
    if (plan instanceof AdaptiveSparkPlanExec) {
      return ((AdaptiveSparkPlanExec) plan).executedPlan();
    }
    if (plan instanceof QueryStageExec) {
      return ((QueryStageExec) plan).plan();
    }
    if (plan instanceof ReusedExchangeExec) {
      return ((ReusedExchangeExec) plan).child();
    }
    // How many shuffle partitions a task reads follows from sizes, which differ where the upstream is not deterministic.
    boolean transparent =
        plan instanceof WholeStageCodegenExec
            || plan instanceof InputAdapter
            || plan instanceof AQEShuffleReadExec
            || plan instanceof TapExec;
    return transparent ? Scala.<SparkPlan>list(plan.children()).get(0) : null;
  }

  private String text(SparkPlan plan) {
    Map<String, String> places = new HashMap<>();
    List<String> below = new ArrayList<>();
    for (SparkPlan child : Scala.<SparkPlan>list(plan.children())) {
      int i = 0;
      for (Attribute attribute : Scala.<Attribute>list(child.output())) {
        places.putIfAbsent(Long.toString(attribute.exprId().id()), below.size() + "." + i++);
      }
      below.add(of(child));
    }
    StringBuilder types = new StringBuilder();
    for (Attribute attribute : Scala.<Attribute>list(plan.output())) {
      types.append(attribute.dataType().catalogString()).append(',');
    }
    String shown = PASSING.matcher(plan.simpleString(MAX_FIELDS)).replaceAll("");
    return String.join("\n", plan.getClass().getName(), types, placed(shown, places), String.join(" ", below));
  }

  /** Attributes by place: of a child's output, else by when they are first named. */
  private static String placed(String text, Map<String, String> places) {
    Matcher matcher = ATTRIBUTE.matcher(text);
    StringBuilder out = new StringBuilder();
    int fresh = 0;
    while (matcher.find()) {
      String place = places.get(matcher.group(1));
      if (place == null) {
        place = "new" + fresh++;
        places.put(matcher.group(1), place);
      }
      matcher.appendReplacement(out, "#" + place + matcher.group(2));
    }
    return matcher.appendTail(out).toString();
  }

  private static String digest(String text) {
    try {
      byte[] hash = MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
      StringBuilder hex = new StringBuilder();
      for (int i = 0; i < 16; i++) {
        hex.append(String.format("%02x", hash[i]));
      }
      return hex.toString();
    } catch (NoSuchAlgorithmException impossible) {
      throw new IllegalStateException(impossible);
    }
  }
}
