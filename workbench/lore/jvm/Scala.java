package workbench.lore;

import java.util.ArrayList;
import java.util.List;
import scala.collection.JavaConverters;
import scala.collection.Seq;

/** Lists between Java and Scala. */
final class Scala {
  private Scala() {}

  static <T> Seq<T> seq(List<T> list) {
    return JavaConverters.asScalaBufferConverter(list).asScala().toSeq();
  }

  static <T> List<T> list(Seq<T> seq) {
    List<T> found = new ArrayList<>(seq.size());
    for (int i = 0; i < seq.size(); i++) {
      found.add(seq.apply(i));
    }
    return found;
  }
}
