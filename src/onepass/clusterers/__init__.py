"""Clusterers: learners of rows without answers, one file each."""

from onepass.clusterers.art_ipca import ARTIPCACluster

__all__ = ["ARTIPCACluster"]
