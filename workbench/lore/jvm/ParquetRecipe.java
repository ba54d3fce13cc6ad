package workbench.lore;

import java.io.IOException;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.Job;
import org.apache.spark.api.python.PythonUtils;
import org.apache.spark.sql.catalyst.expressions.Attribute;
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

  private ParquetRecipe(Armed armed, Target.Input input, SparkPlan plan, Expressions columns) throws IOException {
    this.columns = columns;
    prefix = armed.staging + "/";
    batchRows = armed.batchRows;
    maxBytes = armed.maxBytes;
    schema = columns == null ? schema(input, plan) : columns.schema(input.names);
    Job job = Job.getInstance(plan.session().sessionState().newHadoopConf());
    var options = PythonUtils.toScalaMap(Map.of("compression", "snappy"));
    writers = new ParquetFileFormat().prepareWrite(plan.session(), job, options, schema);
    Configuration settings = job.getConfiguration();
    // Exact and modern, whatever the session writes: a replay has to read the same values.
    settings.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS");
    settings.set("spark.sql.parquet.writeLegacyFormat", "false");
    configuration = new SerializableConfiguration(settings);
  }

  /** Null expressions: the plan's rows as they are. */
  static ParquetRecipe of(Armed armed, Target.Input input, SparkPlan plan, Expressions columns) {
    try {
      return new ParquetRecipe(armed, input, plan, columns);
    } catch (IOException fault) {
      throw new IllegalStateException(fault);
    }
  }

  private static StructType schema(Target.Input input, SparkPlan plan) {
    StructType schema = new StructType();
    for (Attribute attribute : Scala.<Attribute>list(plan.output())) {
      schema = schema.add(input.names.get(schema.size()), attribute.dataType(), true);
    }
    return schema;
  }

  @Override
  public Sink sink(Report report) {
    UnsafeProjection projection = columns == null ? null : columns.projection();
    return new ParquetSink(this, projection, report);
  }
}
