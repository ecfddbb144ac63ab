"""What a picture of tinybench shows, and what is asked about it; no pixels here."""
