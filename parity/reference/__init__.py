"""The real XTTS code, called part by part: one file per folder of a golden set.

Every part has a function that computes from given weights and inputs; `goldens.py` gives it random ones and writes what
comes out, `check.py` gives it those of a folder and compares.
"""
