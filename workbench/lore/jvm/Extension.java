package workbench.lore;

import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/** What spark.sql.extensions names: puts {@link HookRule} behind the columnar transitions, before codegen stages. */
public final class Extension extends AbstractFunction1<SparkSessionExtensions, BoxedUnit> {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectColumnar(
        session ->
            new ColumnarRule() {
              @Override
              public Rule<SparkPlan> postColumnarTransitions() {
                return new HookRule();
              }
            });
    return BoxedUnit.UNIT;
  }
}
