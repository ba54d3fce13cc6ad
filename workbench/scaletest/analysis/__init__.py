"""What a run shows: steps, arrivals, rates, bottlenecks; pure, tables in and tables out."""
