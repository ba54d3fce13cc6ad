package workbench.lore;

import java.math.BigInteger;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;

/** The fingerprint of an output, while it is computed: rows, sum and xor of hashes, sum of ordered hashes. */
final class PrintRecipe implements Tap.Recipe {
  private static final long serialVersionUID = 1L;

  private final Expressions hash;
  private final Expressions ordered;

  /** The hash of a row over its columns, and the ordered hash over h, that hash, and i, the row's number. */
  PrintRecipe(Expressions hash, Expressions ordered) {
    this.hash = hash;
    this.ordered = ordered;
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
      BigInteger upper = BigInteger.valueOf(high).shiftLeft(32);
      return upper.add(BigInteger.valueOf(low)).toString();
    }
  }
}
