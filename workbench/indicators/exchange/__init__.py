"""Documents of other tools as sessions of this project, and sessions for other tools."""
