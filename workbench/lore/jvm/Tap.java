package workbench.lore;

import java.io.IOException;
import java.io.Serializable;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.util.CollectionAccumulator;

/** What is done with the rows that pass a place: stored or fingerprinted, in the partitions that are wanted. */
public final class Tap implements Serializable {
  private static final long serialVersionUID = 1L;

  final int loreId;
  /** Such as input-0 or output. */
  final String place;
  /** Such as loreId-5/input-0. */
  final String name;
  private final Set<Integer> partitions;
  private final CollectionAccumulator<String> records;
  private final Recipe recipe;
  final transient Armed armed;
  /** Set in the driver when the place runs and is the one that is captured. */
  boolean captured;

  /** Makes what takes the rows of one partition, in one attempt. */
  interface Recipe extends Serializable {
    Sink sink(Report report) throws IOException;
  }

  private Tap(Armed armed, int loreId, String place, Set<Integer> partitions, Recipe recipe) {
    this.armed = armed;
    this.loreId = loreId;
    this.place = place;
    this.name = "loreId-" + loreId + "/" + place;
    this.partitions = partitions == null ? null : new HashSet<>(partitions);
    this.records = armed.records;
    this.recipe = recipe;
  }

  static Tap dump(Armed armed, Target target, Target.Input input, SparkPlan plan, boolean whole) {
    String place = "input-" + input.index;
    Recipe recipe = ParquetRecipe.of(armed, input, plan, armed.expressions(target.loreId, place));
    return new Tap(armed, target.loreId, place, whole ? null : target.partitions, recipe);
  }

  /** Null when the output is not to be fingerprinted. */
  static Tap print(Armed armed, Target target) {
    Expressions hash = armed.expressions(target.loreId, "output");
    Expressions ordered = armed.expressions(target.loreId, "ordered");
    if (hash == null || ordered == null) {
      return null;
    }
    return new Tap(armed, target.loreId, "output", target.partitions, new PrintRecipe(hash, ordered));
  }

  /** What takes the rows of a partition in this task; null when it is not wanted. Called by generated code, too. */
  public Flow open(int partition) {
    if (!captured || partitions != null && !partitions.contains(partition)) {
      return null;
    }
    return new Flow(new Report(name, partition, TaskContext.get(), records), recipe, TaskContext.get());
  }
}
