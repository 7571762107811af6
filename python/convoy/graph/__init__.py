"""What every pass over a Relax module shares: expression helpers and the rewriter."""
