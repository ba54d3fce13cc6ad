package workbench.lore;

import java.util.ArrayList;
import java.util.List;
import java.util.function.IntSupplier;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.expressions.codegen.CodegenContext;
import org.apache.spark.sql.catalyst.expressions.codegen.ExprCode;
import org.apache.spark.sql.catalyst.expressions.codegen.GenerateUnsafeProjection$;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.CodegenSupport;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Option;
import scala.collection.Seq;

/** A node that passes on what its child gives, and shows each row to a tap. */
public abstract class TapExec extends SparkPlan implements CodegenSupport {
  private static final long serialVersionUID = 1L;

  final SparkPlan child;
  final Tap tap;
  final transient Object place;
  final String claim;
  final transient SparkPlan operator;
  private CodegenSupport parent;
  private String flow;

  TapExec(SparkPlan child, Tap tap, Object place, String claim, SparkPlan operator) {
    this.child = child;
    this.tap = tap;
    this.place = place;
    this.claim = claim;
    this.operator = operator;
  }

  /** Now it runs: is this the place that is captured? Then it is noted what is met here. */
  private boolean isCaptured(IntSupplier partitions) {
    if (!tap.armed.claim(claim, place)) {
      return false;
    }
    tap.armed.ran(tap, partitions.getAsInt(), operator);
    tap.captured = true;
    return true;
  }

  @Override
  public RDD<InternalRow> doExecute() {
    RDD<InternalRow> rows = child.execute();
    return isCaptured(rows::getNumPartitions) ? new TapRdd<>(rows, tap, InternalRow.class) : rows;
  }

  @Override
  public RDD<ColumnarBatch> doExecuteColumnar() {
    RDD<ColumnarBatch> batches = child.executeColumnar();
    return isCaptured(batches::getNumPartitions) ? new TapRdd<>(batches, tap, ColumnarBatch.class) : batches;
  }

  // Generated code: a tap must not part what Spark would compile into one loop.

  @Override
  public boolean supportCodegen() {
    return child instanceof CodegenSupport && ((CodegenSupport) child).supportCodegen() && !child.supportsColumnar();
  }

  @Override
  public CodegenSupport parent() {
    return parent;
  }

  @Override
  public void parent_$eq(CodegenSupport node) {
    parent = node;
  }

  @Override
  public Seq<RDD<InternalRow>> inputRDDs() {
    Seq<RDD<InternalRow>> inputs = ((CodegenSupport) child).inputRDDs();
    // Called when the stage runs, before its code is sent: only now a place may be claimed.
    isCaptured(() -> Scala.<RDD<InternalRow>>list(inputs).get(0).getNumPartitions());
    return inputs;
  }

  @Override
  public String doProduce(CodegenContext context) {
    String name = context.addReferenceObj("loreTap", tap, Tap.class.getName());
    flow = context.addMutableState(
        Flow.class.getName(), "loreFlow", variable -> variable + " = " + name + ".open(partitionIndex);", true, true);
    String loop = ((CodegenSupport) child).produce(context, this);
    // The loop is left by `return` when it is only interrupted, and falls through when it is over or a limit is met.
    List<String> open = new ArrayList<>(List.of(flow + " != null"));
    open.addAll(Scala.list(limitNotReachedChecks()));
    return loop + "\nif (" + String.join(" && ", open) + ") " + flow + ".exhausted();\n";
  }

  @Override
  public String doConsume(CodegenContext context, Seq<ExprCode> input, ExprCode row) {
    if (Scala.list(output()).isEmpty()) {
      return shown("", "null") + consume(context, input, null);
    }
    if (row.code().toString().isEmpty()) {
      // The child has the row as it is; its columns need not be taken out for us.
      String whole = row.value().toString();
      return shown("", whole) + consume(context, null, whole);
    }
    // Outside of the branch: what comes after uses the same variables.
    String evaluated = evaluateVariables(input);
    context.currentVars_$eq(input);
    context.INPUT_ROW_$eq(null);
    ExprCode made = GenerateUnsafeProjection$.MODULE$.createCode(context, columns(), false);
    String shown = shown(made.code().toString(), made.value().toString());
    return evaluated + shown + consume(context, input, null);
  }

  private String shown(String code, String row) {
    return "\nif (" + flow + " != null) {\n" + code + "\n" + flow + ".add(" + row + ");\n}\n";
  }

  private Seq<Expression> columns() {
    List<Expression> columns = new ArrayList<>();
    for (Attribute attribute : Scala.<Attribute>list(output())) {
      columns.add(new BoundReference(columns.size(), attribute.dataType(), attribute.nullable()));
    }
    return Scala.seq(columns);
  }

  // The plan that Spark sees.

  public SparkPlan child() {
    return child;
  }

  @Override
  public Seq<SparkPlan> children() {
    return Scala.seq(List.of(child));
  }

  @Override
  public Seq<Attribute> output() {
    return child.output();
  }

  @Override
  public Partitioning outputPartitioning() {
    return child.outputPartitioning();
  }

  @Override
  public Seq<SortOrder> outputOrdering() {
    return child.outputOrdering();
  }

  @Override
  public boolean supportsColumnar() {
    return child.supportsColumnar();
  }

  @Override
  public boolean supportsRowBased() {
    return child.supportsRowBased();
  }

  @Override
  public Option<Seq<String>> vectorTypes() {
    return child.vectorTypes();
  }

  @Override
  public SparkPlan doCanonicalize() {
    // Or exchanges that are equal but for a tap would not be shared any more.
    return child.canonicalized();
  }

  @Override
  public String simpleString(int maxFields) {
    return nodeName() + " [loreId=" + tap.loreId + "] " + tap.place;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof TapExec;
  }

  @Override
  public boolean equals(Object other) {
    return other instanceof TapExec && ((TapExec) other).tap == tap && ((TapExec) other).child.equals(child);
  }

  @Override
  public int hashCode() {
    return 31 * child.hashCode() + tap.name.hashCode();
  }

  @Override
  public int productArity() {
    return 2;
  }

  @Override
  public Object productElement(int n) {
    return n == 0 ? child : tap.name;
  }
}
