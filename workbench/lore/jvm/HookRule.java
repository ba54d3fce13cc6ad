package workbench.lore;

import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.internal.SQLConf;

/** Puts taps into a plan, or with AQE into each of its stages, while the session is armed; else does nothing. */
public final class HookRule extends Rule<SparkPlan> {
  @Override
  public SparkPlan apply(SparkPlan plan) {
    Armed armed = Armed.of(SQLConf.get().getConfString(Armed.KEY, ""));
    if (armed == null) {
      return plan;
    }
    try {
      SparkPlan hooked = new Hooks(armed, plan).hooked();
      if (plan instanceof Exchange == hooked instanceof Exchange) {
        return hooked;
      }
      // AQE would end the query.
      armed.fault("hooks: an exchange would have been hidden: " + plan.nodeName());
      return plan;
    } catch (RuntimeException | LinkageError fault) {
      // The query is the user's; a hook that cannot be set is told when the dump is finished.
      armed.fault("hooks: " + fault);
      return plan;
    }
  }
}
