package workbench.lore;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.BindReferences;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.package$;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.types.StructType;

/** Columns computed from a row: expressions that Spark resolved, bound to a row's places. */
public final class Expressions implements Serializable {
  private static final long serialVersionUID = 1L;

  private final ArrayList<Expression> bound;

  private Expressions(List<? extends Expression> bound) {
    this.bound = new ArrayList<>(bound);
  }

  /** Of an optimized plan that projects a table of rows, or is one. */
  public static Expressions of(LogicalPlan plan) {
    boolean projects = plan instanceof Project;
    LogicalPlan rows = projects ? ((Project) plan).child() : plan;
    if (!Scala.list(rows.children()).isEmpty()) {
      throw new IllegalArgumentException("not a projection of rows: " + plan.nodeName());
    }
    List<NamedExpression> named = Scala.list(projects ? ((Project) plan).projectList() : plan.output());
    List<Expression> found = new ArrayList<>();
    for (NamedExpression one : named) {
      var input = package$.MODULE$.AttributeSeq(rows.output());
      found.add(BindReferences.bindReference((Expression) one, input, false));
    }
    return new Expressions(found);
  }

  UnsafeProjection projection() {
    return UnsafeProjection.create(Scala.<Expression>seq(bound));
  }

  StructType schema(List<String> names) {
    StructType schema = new StructType();
    for (int i = 0; i < names.size(); i++) {
      schema = schema.add(names.get(i), bound.get(i).dataType(), true);
    }
    return schema;
  }
}
