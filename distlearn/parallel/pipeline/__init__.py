"""Strategies that place consecutive layers on different ranks, and the schedules that they run."""
