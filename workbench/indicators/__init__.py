"""Which library stack is fastest for my work, on this hardware?

Flow: requirements → locks → environments → runs, one document each → observations → effects → recommendation; SQL is
made from the documents

Map, from what goes in to what comes out:

    indicators.stacks.stack_solver.solve_request(StackRequest) -> StackSet
    indicators.stacks.environments.ensure_environment(Stack) -> Environment
    indicators.measurement.sessions.start_session(SessionConfig) -> SessionOutcome
    indicators.store.archive.read_session(folder) -> Session
    indicators.store.archive.read_results(folder, Session) -> Result
    indicators.analysis.observations.build_observations(Session, Result) -> Observations
    indicators.analysis.effects.compare_session(Observations) -> Comparison
    indicators.recommendation.recommender.recommend(Comparison, RecommendationRequest) -> Recommendation
    indicators.history.history_points.load_history(folders or database, HistoryFilter) -> History
    indicators.study.build_study(NotebookConfig, Run) -> Study
"""

__all__ = ["charts", "config", "contract", "history", "study", "summary", "tables"]
