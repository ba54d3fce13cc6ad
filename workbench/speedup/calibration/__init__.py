"""Calibration: factors per operator from paired recordings, and predictions made with them."""
