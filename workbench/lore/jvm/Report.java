package workbench.lore;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.spark.TaskContext;
import org.apache.spark.util.CollectionAccumulator;

/** What a tap tells the driver about one partition in one attempt: a line of JSON, by an accumulator. */
final class Report {
  private static final int MAX_CHARS = 2_000;

  final int partition;
  final long attempt;
  final ObjectNode line = new ObjectMapper().createObjectNode();
  private final CollectionAccumulator<String> records;

  Report(String tap, int partition, TaskContext task, CollectionAccumulator<String> records) {
    this.partition = partition;
    this.attempt = task.taskAttemptId();
    this.records = records;
    line.put("tap", tap).put("partition", partition).put("attempt", attempt);
    line.put("stage", task.stageId()).put("exhausted", false);
    line.putNull("fault").putNull("error_class").putNull("error_message");
  }

  void exhausted() {
    line.put("exhausted", true);
  }

  void fault(Throwable error) {
    line.put("fault", cut(error.toString()));
  }

  void failed(Throwable error) {
    line.put("error_class", error.getClass().getName());
    line.put("error_message", cut(String.valueOf(error.getMessage())));
  }

  void send() {
    records.add(line.toString());
  }

  private static String cut(String text) {
    return text.length() <= MAX_CHARS ? text : text.substring(0, MAX_CHARS);
  }
}
