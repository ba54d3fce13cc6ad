package workbench.lore;

import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.SparkPlan;
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
      return new Hooks(armed, plan).hooked();
    } catch (RuntimeException | LinkageError fault) {
      // The query is the user's; a hook that cannot be set is told when the dump is finished.
      armed.fault("hooks: " + fault);
      return plan;
    }
  }
}
