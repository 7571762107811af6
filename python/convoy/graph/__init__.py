"""Infrastructure of all passes over Relax modules: functions, expressions and the rewriter."""
