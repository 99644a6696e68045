"""Kinks: sharp heads over tokens that are affine in the input."""
