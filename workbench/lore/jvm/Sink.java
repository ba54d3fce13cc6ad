package workbench.lore;

import java.io.IOException;
import org.apache.spark.sql.catalyst.InternalRow;

/** Takes the rows of one partition in one attempt of a task. */
interface Sink {
  void add(InternalRow row) throws IOException;

  /** The task is over: finish what is open and say what there is. */
  void close(Report report) throws IOException;

  /** Something went wrong: leave nothing behind. */
  void abandon() throws IOException;
}
