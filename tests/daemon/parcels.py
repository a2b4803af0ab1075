"""Parcels as the daemon reads them: whatever it does not refuse here, it takes."""

from __future__ import annotations

from embedwatch.core.boundary import Boundary
from embedwatch.daemon.accounts import opened
from embedwatch.parcels import Parcel

__all__ = ["read_parcel"]


def read_parcel(body: bytes) -> Parcel:
    parcel = Parcel.from_bytes(body)
    opened(parcel, Boundary())
    return parcel
