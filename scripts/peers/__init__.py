"""Other ways to run the same networks on a GPU, timed by one protocol."""
