"""The real XTTS code, called part by part: one file per folder of a golden set.

Every part has a function that computes outputs from weights and inputs. `goldens.py` calls it with random ones and writes
the results; `check.py` calls it with those of a folder and compares.
"""
