"""The doctor: looks at the database and the fleet, says what is wrong with its evidence, and what to do about it.

    examiner of the store ──facts──▶ judgements: pure, one for each check ──▶ a diagnosis

Promises: changes nothing, raises nothing for a database in trouble, and names an exact remedy for each finding.
"""

from everpoll.doctor.diagnosis import Check, Diagnosis, Level
from everpoll.doctor.examine import diagnose

__all__ = ["Check", "Diagnosis", "Level", "diagnose"]
