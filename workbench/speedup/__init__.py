"""How much faster will Spark jobs be on an accelerator; for now: what one application spent its time on."""
