package workbench.lore;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.python.PythonUtils;
import scala.collection.JavaConverters;
import scala.collection.Seq;

/** Lists between Java and Scala; Scala's own methods of sequences are ambiguous to Eclipse's compiler. */
final class Scala {
  private Scala() {}

  static <T> Seq<T> seq(List<T> list) {
    return PythonUtils.toSeq(list);
  }

  /** Any sequence: named in full, because the import above is of the line of Scala. */
  static <T> List<T> list(scala.collection.Seq<? extends T> seq) {
    return new ArrayList<>(JavaConverters.seqAsJavaList(seq));
  }
}
