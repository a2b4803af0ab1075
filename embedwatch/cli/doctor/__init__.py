"""`embedwatch doctor`: packages, extras, the machine, and a tiny run."""

from embedwatch.cli.doctor.command import doctor_command

__all__ = ["doctor_command"]
