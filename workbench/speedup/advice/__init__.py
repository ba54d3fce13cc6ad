"""Changes to try for one application: a setting, code or layout, with the seconds that each can save at most."""
