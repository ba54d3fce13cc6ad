package workbench.lore;

import java.io.IOException;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.util.TaskCompletionListener;
import org.apache.spark.util.TaskFailureListener;

/**
 * The rows of one partition in one attempt, from its first row to the end of its task.
 *
 * <p>It never fails the query: what goes wrong is reported. Python workers are fed by a thread of their own, which may
 * still pull rows while the task ends, hence the locks.
 */
public final class Flow {
  private final Report report;
  private Sink sink;

  Flow(Report report, Tap.Recipe recipe, TaskContext task) {
    this.report = report;
    try {
      sink = recipe.sink(report);
    } catch (IOException | RuntimeException fault) {
      report.fault(fault);
    }
    // Listeners are called last in, first out: those of the operators above, registered later, have had their rows.
    task.addTaskFailureListener((TaskFailureListener) (context, error) -> report.failed(error));
    task.addTaskCompletionListener((TaskCompletionListener) context -> close());
  }

  /** A row passes; it is used before this returns. */
  public synchronized void add(InternalRow row) {
    if (sink == null) {
      return;
    }
    try {
      // Generated code has no row to show where there are no columns.
      sink.add(row == null ? InternalRow.empty() : row);
    } catch (IOException | RuntimeException fault) {
      give(fault);
    }
  }

  /** The input came to its own end: nobody above closed it early. */
  public synchronized void exhausted() {
    report.exhausted();
  }

  private synchronized void close() {
    if (sink != null) {
      try {
        sink.close(report);
      } catch (IOException | RuntimeException fault) {
        give(fault);
      }
    }
    sink = null;
    report.send();
  }

  private void give(Exception fault) {
    report.fault(fault);
    try {
      sink.abandon();
    } catch (IOException | RuntimeException second) {
      fault.addSuppressed(second);
    }
    sink = null;
  }
}
