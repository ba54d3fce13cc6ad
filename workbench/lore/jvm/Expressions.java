package workbench.lore;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.BindReferences;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.package$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.reflect.ClassTag$;

/** SQL texts over named columns, resolved by Spark itself and bound to a row's places. */
final class Expressions implements Serializable {
  private static final long serialVersionUID = 1L;

  private final ArrayList<Expression> bound = new ArrayList<>();

  private Expressions(List<Expression> bound) {
    this.bound.addAll(bound);
  }

  /** Texts over c0..cn, the columns of a plan's output. */
  static Expressions over(SparkPlan plan, List<String> texts) {
    StructType columns = new StructType();
    for (int i = 0; i < plan.output().size(); i++) {
      columns = columns.add("c" + i, plan.output().apply(i).dataType(), true);
    }
    return resolve(plan, columns, texts);
  }

  /** Texts over the columns of a schema; the plan only says which session. */
  static Expressions resolve(SparkPlan plan, StructType columns, List<String> texts) {
    var session = plan.session();
    var none = plan.sparkContext().emptyRDD(ClassTag$.MODULE$.<InternalRow>apply(InternalRow.class));
    var frame = session.internalCreateDataFrame(none, columns, false).selectExpr(texts.toArray(new String[0]));
    LogicalPlan resolved = frame.queryExecution().optimizedPlan();
    if (!(resolved instanceof Project)) {
      return new Expressions(new ArrayList<>(Scala.list(resolved.output())));
    }
    Project project = (Project) resolved;
    List<Expression> found = new ArrayList<>();
    for (int i = 0; i < project.projectList().size(); i++) {
      Expression one = (Expression) project.projectList().apply(i);
      found.add(BindReferences.bindReference(one, package$.MODULE$.AttributeSeq(project.child().output()), false));
    }
    return new Expressions(found);
  }

  UnsafeProjection projection() {
    return UnsafeProjection.create(Scala.<Expression>seq(bound));
  }

  StructType schema(List<String> names) {
    StructType schema = new StructType();
    for (int i = 0; i < names.size(); i++) {
      DataType type = bound.get(i).dataType();
      schema = schema.add(names.get(i), type, true);
    }
    return schema;
  }
}
