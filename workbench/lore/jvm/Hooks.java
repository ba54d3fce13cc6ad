package workbench.lore;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.execution.CollectLimitExec;
import org.apache.spark.sql.execution.CollectTailExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeLike;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;

/** Taps set into one plan that the rule was given. */
final class Hooks {
  private final Armed armed;
  private final SparkPlan root;
  private final String planning;
  private final Signature signatures = new Signature();
  private final Set<SparkPlan> exchanges = new HashSet<>();

  Hooks(Armed armed, SparkPlan root) {
    this.armed = armed;
    this.root = root;
    this.planning = armed.planning(root.sparkContext());
  }

  SparkPlan hooked() {
    return hooked(root);
  }

  private SparkPlan hooked(SparkPlan plan) {
    // Spark runs after this rule and lets equal exchanges share one: only the first is met in the final plan.
    if (plan instanceof Exchange && !exchanges.add(plan.canonicalized())) {
      return plan;
    }
    List<SparkPlan> children = new ArrayList<>();
    boolean changed = false;
    for (int k = 0; k < plan.children().size(); k++) {
      SparkPlan child = plan.children().apply(k);
      children.add(hooked(child));
      changed |= children.get(k) != child;
    }
    if (Signature.isWrapper(plan)) {
      return changed ? plan.withNewChildren(Scala.seq(children)) : plan;
    }
    return tapped(plan, changed ? plan.withNewChildren(Scala.seq(children)) : plan);
  }

  /** The plan with taps around it and its inputs; `original` is what it was before anything was set below it. */
  private SparkPlan tapped(SparkPlan original, SparkPlan plan) {
    String signature = signatures.of(original);
    int occurrence = armed.occurrence(planning, signature);
    SparkPlan result = plan;
    for (Target target : armed.targets) {
      if (target.signature.equals(signature) && target.occurrence == occurrence) {
        result = around(target, original, result);
      }
      for (Target.Input input : target.inputs) {
        if (signature.equals(input.elsewhere)) {
          Tap tap = Tap.dump(armed, target, input, original, true);
          result = new LoreDumpExec(result, tap, new Object(), tap.name, null);
        }
      }
    }
    return result;
  }

  private SparkPlan around(Target target, SparkPlan original, SparkPlan plan) {
    Object place = new Object();
    String claim = "loreId-" + target.loreId;
    List<SparkPlan> children = new ArrayList<>();
    for (int k = 0; k < plan.children().size(); k++) {
      SparkPlan child = plan.children().apply(k);
      Target.Input input = isBroadcast(child) ? null : target.inputs.get(k);
      if (input != null) {
        Tap tap = Tap.dump(armed, target, input, original.children().apply(k), false);
        child = new LoreDumpExec(child, tap, place, claim, original);
      }
      children.add(child);
    }
    SparkPlan result = plan.withNewChildren(Scala.seq(children));
    if (target.hash == null || !isTappable(original)) {
      return result;
    }
    return new LoreFingerprintExec(result, Tap.print(armed, target, original), place, claim, original);
  }

  private static boolean isBroadcast(SparkPlan child) {
    boolean reused =
        child instanceof ReusedExchangeExec && ((ReusedExchangeExec) child).child() instanceof BroadcastExchangeLike;
    return reused || child instanceof BroadcastExchangeLike || child instanceof BroadcastQueryStageExec;
  }

  /** May something stand above it? AQE wants to see an exchange itself, and a limit at the root collects by itself. */
  private boolean isTappable(SparkPlan plan) {
    boolean collects =
        plan instanceof CollectLimitExec || plan instanceof CollectTailExec || plan instanceof TakeOrderedAndProjectExec;
    return !(plan instanceof Exchange) && !(collects && plan == root);
  }
}
