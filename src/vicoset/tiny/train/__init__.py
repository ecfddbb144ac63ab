"""How the bundled models were trained: pages, a fast forward, phases, and a loop that resumes."""
