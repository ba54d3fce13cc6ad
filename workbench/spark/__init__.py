"""What areas that start a Spark share: its Java, its engines, their jars."""
