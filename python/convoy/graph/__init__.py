"""Infrastructure of all passes over Relax modules: expression helpers and the rewriter."""
