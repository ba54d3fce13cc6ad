package workbench.lore;

import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.IndexedSeq;

/** Shown in plans as LoreDump: stores rows that pass. */
public final class LoreDumpExec extends TapExec {
  private static final long serialVersionUID = 1L;

  LoreDumpExec(SparkPlan child, Tap tap, Object place, String claim, SparkPlan operator) {
    super(child, tap, place, claim, operator);
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> children) {
    return new LoreDumpExec(Scala.<SparkPlan>list(children).get(0), tap, place, claim, operator);
  }

  @Override
  public String nodeName() {
    return "LoreDump";
  }
}
