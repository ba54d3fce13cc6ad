package workbench.lore;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.SerializableConfiguration;

/** Rows as Parquet files of a bounded number of rows, under names of the attempt's own. */
final class ParquetRecipe implements Tap.Recipe {
  private static final long serialVersionUID = 1L;

  final String prefix;
  final StructType schema;
  final OutputWriterFactory writers;
  final SerializableConfiguration configuration;
  final long batchRows;
  final long maxBytes;
  /** Null: rows as they are. */
  private final Expressions columns;
  /** Rows without columns are stored as a constant. */
  final boolean zeroColumns;

  private ParquetRecipe(Armed armed, Target.Input input, SparkPlan plan, Expressions columns) throws IOException {
    this.columns = columns;
    zeroColumns = plan.output().isEmpty();
    prefix = armed.staging + "/";
    batchRows = armed.batchRows;
    maxBytes = armed.maxBytes;
    schema = columns == null ? schema(input, plan) : columns.schema(input.names);
    Job job = Job.getInstance(plan.session().sessionState().newHadoopConf());
    writers = new ParquetFileFormat().prepareWrite(plan.session(), job, scala.collection.immutable.Map$.MODULE$.empty(), schema);
    Configuration settings = job.getConfiguration();
    // Exact and modern, whatever the session writes: a replay has to read the same values.
    settings.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS");
    settings.set("spark.sql.parquet.writeLegacyFormat", "false");
    configuration = new SerializableConfiguration(settings);
  }

  static ParquetRecipe of(Armed armed, Target.Input input, SparkPlan plan) {
    List<String> texts = input.columns;
    if (plan.output().isEmpty()) {
      texts = List.of("cast(1 as tinyint) as " + input.names.get(0));
    }
    try {
      return new ParquetRecipe(armed, input, plan, texts == null ? null : Expressions.over(plan, texts));
    } catch (IOException fault) {
      throw new IllegalStateException(fault);
    }
  }

  private static StructType schema(Target.Input input, SparkPlan plan) {
    StructType schema = new StructType();
    for (int i = 0; i < plan.output().size(); i++) {
      schema = schema.add(input.names.get(i), plan.output().apply(i).dataType(), true);
    }
    return schema;
  }

  @Override
  public Sink sink(Report report) {
    UnsafeProjection projection = columns == null ? null : columns.projection();
    return new ParquetSink(this, projection, report);
  }
}
