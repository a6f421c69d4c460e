"""Safeguards of validation, authorisation and deploys, taken out one at a time, to see which test fails."""
