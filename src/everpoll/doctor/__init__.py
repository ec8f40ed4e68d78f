"""The doctor: examines the database and the fleet, and reports what is wrong, with the evidence and a remedy.

    examiner of the store ──facts──▶ judgements: pure, one for each check ──▶ a diagnosis

Promises: changes nothing, raises nothing for a database in trouble, and names an exact remedy for each finding.
"""

from everpoll.doctor.diagnosis import Check, Diagnosis, Level
from everpoll.doctor.examine import diagnose

__all__ = ["Check", "Diagnosis", "Level", "diagnose"]
