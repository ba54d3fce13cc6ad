"""Analysis of a run: steps, arrivals, rates, bottlenecks; pure, tables in and tables out."""
