"""SQL about answers: pending actions, early answers, dead letters."""
