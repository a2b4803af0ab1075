"""Integrations: embedwatch in the trainers of others. Each module serves one of them and is imported by its name."""
