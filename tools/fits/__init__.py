"""Offline fits: what wrote the fitted files of hardware/, and checks of them against publications.

    python -m tools.fits.kernels OUT          kernel laws, hardware/efficiency/class_*.yaml
    python -m tools.fits.serving              hardware/efficiency/serving/calibration.yaml
    python -m tools.fits.training             hardware/training/*.yaml and its calibration
    python -m tools.fits.serving kin          how far the errors of two chips agree
    python -m tools.fits.published            three published training runs; energy: power, energy

The files that a fit wrote name their writer as a module of `dse.accuracy`, where the fits stood
before. A byte of these files moves the data digest of every study, so the names stay until the
next fit that moves a number.
"""
