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

  Target(JsonNode node) {
    loreId = node.get("lore_id").asInt();
    signature = node.get("signature").asText();
    occurrence = node.get("occurrence").asInt();
    partitions = node.get("partitions").isNull() ? null : numbers(node.get("partitions"));
    for (JsonNode input : node.get("inputs")) {
      inputs.add(new Input(input));
    }
  }

  private static Set<Integer> numbers(JsonNode list) {
    Set<Integer> found = new HashSet<>();
    list.forEach(one -> found.add(one.asInt()));
    return found;
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

    Input(JsonNode node) {
      index = node.get("index").asInt();
      elsewhere = node.get("elsewhere").isNull() ? null : node.get("elsewhere").asText();
      names = texts(node.get("names"));
    }
  }
}
