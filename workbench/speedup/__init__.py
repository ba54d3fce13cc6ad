"""How much faster will Spark jobs be on an accelerator, operator by operator, and which gain most?

Flow: event log tables → executions and time pieces → prices and factors by session → factor model → predictions →
ranking

Map, from what goes in to what comes out:

    eventlog.reader.read_event_logs(logs) -> EventLogFacts
    speedup.attribution.executions.read_executions(EventLogFacts) -> Execution
    speedup.attribution.time_pieces.split_wall_time(Execution) -> TimePiece
    speedup.attribution.time_pieces.measure_log_times(EventLogFacts) -> Measured
    speedup.comparison.pair.load_recorded_pair(folder) -> Pair
    speedup.calibration.pair_calibration.calibrate_with_origin(Pair) -> CalibrationResult
    speedup.calibration.factor_model.load_factor_model(file) -> FactorModel
    speedup.calibration.prediction.predict_queries(FactorModel, Measured) -> DataFrame
    speedup.fleet.qualification.qualify_applications(FactorModel, Measured) -> Qualification
    speedup.study.build_study(PairConfig, FleetConfig or ProfileConfig, Run) -> Study
"""

__all__ = ["charts", "config", "engines", "study", "tables"]
