"""Networks from model files, and several networks joined into one, as Relax modules."""
