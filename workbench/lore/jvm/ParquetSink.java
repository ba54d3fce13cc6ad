package workbench.lore;

import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.TaskType;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.internal.SQLConf;
import scala.Function0;

/** Writes a partition's rows into files that no other attempt has; the driver picks an attempt and renames. */
final class ParquetSink implements Sink {
  /** A task may compute a partition twice, and tasks share a JVM. */
  private static final AtomicLong SERIAL = new AtomicLong();

  private final ParquetRecipe recipe;
  private final UnsafeProjection projection;
  private final Report report;
  private final String prefix;
  private final List<Path> files = new ArrayList<>();
  private final List<Long> rows = new ArrayList<>();
  private OutputWriter writer;
  private long rowsOfBatch;
  private long bytes;

  ParquetSink(ParquetRecipe recipe, UnsafeProjection projection, Report report) {
    this.recipe = recipe;
    this.projection = projection;
    this.report = report;
    this.prefix = "p" + report.partition + "-a" + report.attempt + "-" + SERIAL.incrementAndGet() + "-";
  }

  @Override
  public void add(InternalRow row) throws IOException {
    if (writer == null) {
      open();
    }
    writer.write(projection == null ? row : projection.apply(row));
    if (++rowsOfBatch >= recipe.batchRows) {
      finishBatch();
    }
  }

  private void open() {
    Path file = new Path(recipe.prefix + prefix + files.size() + ".parquet");
    files.add(file);
    Configuration settings = new Configuration(recipe.configuration.value());
    TaskAttemptID id = new TaskAttemptID("lore", 0, TaskType.MAP, report.partition, 0);
    // The writer asks the session's confs how to write old dates; the default refuses those before 1900.
    Function0<OutputWriter> make =
        new scala.runtime.AbstractFunction0<OutputWriter>() {
          @Override
          public OutputWriter apply() {
            return recipe.writers.newInstance(file.toString(), recipe.schema, new TaskAttemptContextImpl(settings, id));
          }
        };
    writer = SQLConf.withExistingConf(exact(), make);
  }

  private static SQLConf exact() {
    SQLConf conf = new SQLConf();
    conf.setConfString("spark.sql.parquet.datetimeRebaseModeInWrite", "CORRECTED");
    conf.setConfString("spark.sql.parquet.int96RebaseModeInWrite", "CORRECTED");
    conf.setConfString("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS");
    return conf;
  }

  private void finishBatch() throws IOException {
    if (writer == null) {
      return;
    }
    writer.close();
    writer = null;
    rows.add(rowsOfBatch);
    rowsOfBatch = 0;
    Path file = files.get(files.size() - 1);
    bytes += file.getFileSystem(recipe.configuration.value()).getFileStatus(file).getLen();
    if (recipe.maxBytes >= 0 && bytes > recipe.maxBytes) {
      throw new IOException("more than " + recipe.maxBytes + " bytes");
    }
  }

  @Override
  public void close(Report report) throws IOException {
    finishBatch();
    ArrayNode names = report.line.putArray("files");
    files.forEach(file -> names.add(file.getName()));
    ArrayNode counts = report.line.putArray("batch_rows");
    rows.forEach(counts::add);
    report.line.put("bytes", bytes);
  }

  @Override
  public void abandon() throws IOException {
    if (writer != null) {
      writer.close();
    }
    for (Path file : files) {
      FileSystem system = file.getFileSystem(recipe.configuration.value());
      system.delete(file, false);
    }
  }
}
