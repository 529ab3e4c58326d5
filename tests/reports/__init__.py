"""What users of GPU-sharing schedulers report in public, kind of fault by kind of fault.

A test's name begins with the number of its report; docs/field-reports.md says what is left out.
"""
