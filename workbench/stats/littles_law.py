"""Little's law (1961): users at once are arrivals times length of a session."""

from __future__ import annotations


def count_users_at_once(sessions_per_hour: float, session_s: float) -> tuple[float, str]:
    """Users at once, from the sessions that begin in an hour and their length in seconds; and the step in words.

    >>> count_users_at_once(3000, 100)[1]
    "3,000 sessions an hour x 100 s = 83.3 users at once (Little's law)"
    """
    users = sessions_per_hour * session_s / 3600
    return (
        users,
        f"{sessions_per_hour:,.6g} sessions an hour x {session_s:.4g} s = {users:,.3g} users at once (Little's law)",
    )


def count_sessions_per_hour(users: float, session_s: float) -> float:
    """Sessions that begin in an hour, from the users at once and the length of their sessions in seconds.

    >>> count_sessions_per_hour(100, 120)
    3000.0
    """
    return users * 3600 / session_s
