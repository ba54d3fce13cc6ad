package workbench.lore;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** An operator that is to be captured. */
final class Target {
  final int loreId;
  final String signature;
  final int occurrence;
  /** Null: all of them. */
  final Set<Integer> partitions;
  final List<Input> inputs = new ArrayList<>();
  /** SQL over c0..cn: the hash of an output row; null when the output is not to be fingerprinted. */
  final String hash;
  /** SQL over h, the row's hash, and i, its number in the partition. */
  final String ordered;

  Target(JsonNode node) {
    loreId = node.get("lore_id").asInt();
    signature = node.get("signature").asText();
    occurrence = node.get("occurrence").asInt();
    partitions = node.get("partitions").isNull() ? null : numbers(node.get("partitions"));
    hash = text(node.get("hash"));
    ordered = text(node.get("ordered"));
    for (JsonNode input : node.get("inputs")) {
      inputs.add(new Input(input));
    }
  }

  private static Set<Integer> numbers(JsonNode list) {
    Set<Integer> found = new HashSet<>();
    list.forEach(one -> found.add(one.asInt()));
    return found;
  }

  private static String text(JsonNode node) {
    return node == null || node.isNull() ? null : node.asText();
  }

  private static List<String> texts(JsonNode list) {
    List<String> found = new ArrayList<>();
    list.forEach(one -> found.add(one.asText()));
    return found;
  }

  /** One input: a child's rows, or the whole output of a plan elsewhere that is broadcast or is a subquery. */
  static final class Input {
    final int index;
    /** Signature of the plan elsewhere; null for a child. */
    final String elsewhere;
    /** Names of the stored columns. */
    final List<String> names;
    /** SQL over c0..cn for each stored column; null when the rows are stored as they are. */
    final List<String> columns;

    Input(JsonNode node) {
      index = node.get("index").asInt();
      elsewhere = text(node.get("elsewhere"));
      names = texts(node.get("names"));
      columns = node.get("columns").isNull() ? null : texts(node.get("columns"));
    }
  }
}
