package workbench.lore;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.execution.CollectLimitExec;
import org.apache.spark.sql.execution.CollectTailExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.TakeOrderedAndProjectExec;
import org.apache.spark.sql.execution.adaptive.BroadcastQueryStageExec;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeLike;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ReusedExchangeExec;
import org.apache.spark.sql.internal.SQLConf;

/** Taps set into one plan that the rule was given. */
final class Hooks {
  private final Armed armed;
  private final SparkPlan root;
  private final Occurrences occurrences;
  private final Signature signatures = new Signature();

  Hooks(Armed armed, SparkPlan root) {
    this.armed = armed;
    this.root = root;
    this.occurrences = armed.occurrences(root.sparkContext());
  }

  SparkPlan hooked() {
    // Subqueries are planned side by side.
    synchronized (occurrences) {
      return hooked(root, occurrences.all());
    }
  }

  private SparkPlan hooked(SparkPlan plan, Map<String, Integer> outer) {
    Map<String, Integer> counts = mayBeShared(plan) ? occurrences.below(plan, outer) : outer;
    List<SparkPlan> children = new ArrayList<>();
    boolean changed = false;
    for (SparkPlan child : Scala.<SparkPlan>list(plan.children())) {
      SparkPlan hooked = hooked(child, counts);
      children.add(hooked);
      changed |= hooked != child;
    }
    if (Signature.isWrapper(plan)) {
      return changed ? plan.withNewChildren(Scala.seq(children)) : plan;
    }
    return tapped(plan, changed ? plan.withNewChildren(Scala.seq(children)) : plan, counts);
  }

  private boolean mayBeShared(SparkPlan plan) {
    SQLConf conf = SQLConf.get();
    return plan instanceof Exchange ? conf.exchangeReuseEnabled() : plan == root && conf.subqueryReuseEnabled();
  }

  /** The plan with taps around it and its inputs; `original` is what it was before anything was set below it. */
  private SparkPlan tapped(SparkPlan original, SparkPlan plan, Map<String, Integer> counts) {
    String signature = signatures.of(original);
    int occurrence = Occurrences.next(counts, signature);
    SparkPlan result = plan;
    for (Target target : armed.targets) {
      if (target.signature.equals(signature) && target.occurrence == occurrence) {
        result = around(target, original, result);
      }
      for (Target.Input input : target.inputs) {
        if (input.elsewhere != null) {
          result = elsewhere(target, input, original, result);
        }
      }
    }
    return result;
  }

  /** A tap on what is broadcast, below its exchange, or on the top of a subquery's plan. */
  private SparkPlan elsewhere(Target target, Target.Input input, SparkPlan original, SparkPlan plan) {
    boolean broadcasts = original instanceof BroadcastExchangeLike;
    // Other exchanges have the signature of the shuffle reads above them, and must stay what AQE takes them for.
    if (!broadcasts && (original != root || original instanceof Exchange)) {
      return plan;
    }
    SparkPlan whole = broadcasts ? Scala.<SparkPlan>list(original.children()).get(0) : original;
    if (!input.elsewhere.equals(signatures.of(whole))) {
      return plan;
    }
    Tap tap = Tap.dump(armed, target, input, whole, true);
    SparkPlan tapped = broadcasts ? Scala.<SparkPlan>list(plan.children()).get(0) : plan;
    SparkPlan dump = new LoreDumpExec(tapped, tap, new Object(), tap.name, null);
    return broadcasts ? plan.withNewChildren(Scala.seq(List.of(dump))) : dump;
  }

  private SparkPlan around(Target target, SparkPlan original, SparkPlan plan) {
    Object place = new Object();
    String claim = "loreId-" + target.loreId;
    List<SparkPlan> originals = Scala.list(original.children());
    List<SparkPlan> children = Scala.list(plan.children());
    for (int k = 0; k < children.size(); k++) {
      if (!isBroadcast(originals.get(k))) {
        Tap tap = Tap.dump(armed, target, target.inputs.get(k), originals.get(k), false);
        children.set(k, new LoreDumpExec(children.get(k), tap, place, claim, original));
      }
    }
    SparkPlan result = plan.withNewChildren(Scala.seq(children));
    Tap print = isTappable(original) ? Tap.print(armed, target) : null;
    return print == null ? result : new LoreFingerprintExec(result, print, place, claim, original);
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
