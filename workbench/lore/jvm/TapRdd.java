package workbench.lore;

import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/** Rows or batches as they come, each shown to a tap where its partition is wanted. */
final class TapRdd<T> extends RDD<T> {
  private static final long serialVersionUID = 1L;

  private final Tap tap;

  TapRdd(RDD<T> parent, Tap tap, Class<T> kind) {
    super(parent, ClassTag$.MODULE$.apply(kind));
    this.tap = tap;
  }

  @Override
  public Partition[] getPartitions() {
    return parentRdd().partitions();
  }

  private RDD<T> parentRdd() {
    return this.<T>firstParent(elementClassTag());
  }

  @Override
  public scala.Option<org.apache.spark.Partitioner> partitioner() {
    return parentRdd().partitioner();
  }

  @Override
  public Iterator<T> compute(Partition split, TaskContext task) {
    Iterator<T> items = parentRdd().iterator(split, task);
    Flow flow = tap.open(split.index());
    return flow == null ? items : new Shown<>(items, flow);
  }

  private static final class Shown<T> extends AbstractIterator<T> {
    private final Iterator<T> items;
    private final Flow flow;

    Shown(Iterator<T> items, Flow flow) {
      this.items = items;
      this.flow = flow;
    }

    @Override
    public boolean hasNext() {
      boolean more = items.hasNext();
      if (!more) {
        flow.exhausted();
      }
      return more;
    }

    @Override
    public T next() {
      T item = items.next();
      if (item instanceof ColumnarBatch) {
        ((ColumnarBatch) item).rowIterator().forEachRemaining(flow::add);
      } else {
        flow.add((InternalRow) item);
      }
      return item;
    }
  }
}
