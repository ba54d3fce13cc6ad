package workbench.lore;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/** The fingerprint of an output, while it is computed: rows, sum and xor of hashes, sum of ordered hashes. */
final class PrintRecipe implements Tap.Recipe {
  private static final long serialVersionUID = 1L;

  private final Expressions hash;
  private final Expressions ordered;

  private PrintRecipe(Expressions hash, Expressions ordered) {
    this.hash = hash;
    this.ordered = ordered;
  }

  static PrintRecipe of(Target target, SparkPlan plan) {
    StructType numbered = new StructType().add("h", DataTypes.LongType, false).add("i", DataTypes.LongType, false);
    return new PrintRecipe(
        Expressions.over(plan, List.of(target.hash)), Expressions.resolve(plan, numbered, List.of(target.ordered)));
  }

  @Override
  public Sink sink(Report report) {
    UnsafeProjection hashOf = hash.projection();
    UnsafeProjection orderedOf = ordered.projection();
    GenericInternalRow numbered = new GenericInternalRow(2);
    return new Sink() {
      private final Sum sum = new Sum();
      private final Sum orderedSum = new Sum();
      private long xor;
      private long rows;

      @Override
      public void add(InternalRow row) {
        long value = hashOf.apply(row).getLong(0);
        numbered.setLong(0, value);
        numbered.setLong(1, rows++);
        sum.add(value);
        orderedSum.add(orderedOf.apply(numbered).getLong(0));
        xor ^= value;
      }

      @Override
      public void close(Report report) {
        report.line.put("rows", rows).put("hash_xor", xor);
        report.line.put("hash_sum", sum.toString()).put("ordered_sum", orderedSum.toString());
      }

      @Override
      public void abandon() {}
    };
  }

  /** An exact sum of longs: 2^31 of them and more. */
  private static final class Sum {
    private long low;
    private long high;

    void add(long value) {
      low += value & 0xffffffffL;
      high += value >> 32;
    }

    @Override
    public String toString() {
      java.math.BigInteger upper = java.math.BigInteger.valueOf(high).shiftLeft(32);
      return upper.add(java.math.BigInteger.valueOf(low)).toString();
    }
  }
}
