"""Integrations: embedwatch in the trainers of others, each module for one, imported by its name; and among ranks."""
